// An LSTM layer on a CPU, forward and backward.
//
// Every product is one of blocks of a few rows with weights that are packed into panels of two vectors: a block's sums
// stay in registers, and a panel comes from the core's second cache. The products with the inputs are taken for all
// tokens at once, those with the previous outputs token by token, and the gates are computed from them before they
// leave the registers. Examples pass through a layer in blocks of at most ROWS, and no sum of an example depends on the
// others; sums over examples are in their order. No state is shared between calls.

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <new>

namespace {

#ifdef __AVX512F__
constexpr int BYTES = 64, ROWS = 12;  // of a vector; rows of a block
#else
constexpr int BYTES = 32, ROWS = 6;
#endif

template <typename T> struct Vector { typedef T type __attribute__((vector_size(BYTES), may_alias)); };
template <typename T> struct Integers;
template <> struct Integers<float> { typedef int32_t type __attribute__((vector_size(BYTES), may_alias)); };
template <> struct Integers<double> { typedef int64_t type __attribute__((vector_size(BYTES), may_alias)); };

// ---- what a caller passes; compiled/lstm.py has the same structures

// Gates are in the order i, f, g, o. Examples come first, then tokens.
struct Pass {
  int64_t examples, tokens, inputs, hidden;
  const void* x;      // [examples, tokens, inputs]
  const void* w_in;   // [4 hidden, inputs]
  const void* w_out;  // [4 hidden, hidden], multiplied by the outputs at the previous token
  const void* bias;   // [4 hidden]
  void* gates;        // [examples, tokens, 4 hidden] values of the gates; null if no backward pass follows
  void* cell;         // [examples, tokens, hidden] c, or null
  void* squashed;     // [examples, tokens, hidden] tanh(c), or null
  void* out;          // [examples, tokens, hidden] h
};

struct Derivatives {
  const void* out;  // [examples, tokens, hidden] derivative of the loss by h
  void* x;          // [examples, tokens, inputs], or null if it is not asked for
  void* w_in;       // [4 hidden, inputs]
  void* w_out;      // [4 hidden, hidden]
  void* bias;       // [4 hidden]
};

// ---- functions of the gates

template <typename T> struct Exponential;
template <> struct Exponential<float> {
  static constexpr float most = 88, shift = 12582912, high = 0.693359375f, low = -2.12194440e-4f;
  static constexpr int degree = 7, bits = 23, bias = 127;
};
template <> struct Exponential<double> {
  static constexpr double most = 708, shift = 6755399441055744, high = 0.693147180369123816490, low = 1.90821492927058770002e-10;
  static constexpr int degree = 13, bits = 52, bias = 1023;
};

// exp(x) = scale + scale * rest, where rest is exact to rounding near x = 0; NaN stays
template <typename T> inline void exponential(typename Vector<T>::type x, typename Vector<T>::type& scale, typename Vector<T>::type& rest) {
  using V = typename Vector<T>::type;
  using E = Exponential<T>;
  using I = typename Integers<T>::type;
  const V most = V{} + E::most;
  x = x > most ? most : x;
  x = x < -most ? -most : x;
  const V shifted = x * static_cast<T>(1.44269504088896340736) + E::shift;  // the last bits are the rounded quotient
  const V n = shifted - E::shift;
  const V r = (x - n * E::high) - n * E::low;
  I power;
  std::memcpy(&power, &shifted, BYTES);
  power = (power + E::bias) << E::bits;
  std::memcpy(&scale, &power, BYTES);
  V sum{};
  T factor[E::degree + 1];
  factor[0] = 1;
  for (int k = 1; k <= E::degree; k++) factor[k] = factor[k - 1] / k;
#pragma GCC unroll 16
  for (int k = E::degree; k > 0; k--) sum = (sum + factor[k]) * r;
  rest = sum;
}

template <typename T> inline typename Vector<T>::type sigmoid(typename Vector<T>::type x) {
  typename Vector<T>::type scale, rest;
  exponential<T>(-x, scale, rest);
  return 1 / (1 + scale + scale * rest);
}

template <typename T> inline typename Vector<T>::type hyperbolic_tangent(typename Vector<T>::type x) {
  typename Vector<T>::type scale, rest;
  exponential<T>(2 * x, scale, rest);
  const typename Vector<T>::type less = (scale - 1) + scale * rest;  // exp(2 x) - 1
  return less / (less + 2);
}

// ---- products

template <typename T> struct Products {
  using V = typename Vector<T>::type;
  static constexpr int64_t L = BYTES / sizeof(T);

  static V* vectors(int64_t count) {
    void* found = std::aligned_alloc(64, static_cast<size_t>((count * BYTES + 63) / 64 * 64));
    if (!found) throw std::bad_alloc();
    return static_cast<V*>(found);
  }

  static int64_t many(int64_t values) { return (values + L - 1) / L; }       // vectors
  static int64_t pairs(int64_t values) { return (values + 2 * L - 1) / (2 * L); }  // of vectors

  static V load(const T* from, int64_t count) {
    V v{};
    if (count >= L) std::memcpy(&v, from, BYTES);
    else if (count > 0) std::memcpy(&v, from, sizeof(T) * count);
    return v;
  }

  static void store(T* to, V v, int64_t count) {
    if (count >= L) std::memcpy(to, &v, BYTES);
    else if (count > 0) std::memcpy(to, &v, sizeof(T) * count);
  }

  // panels of m [rows, columns]: [pair of vectors of columns][row][2]
  static void pack(const T* m, int64_t rows, int64_t columns, V* panel) {
    for (int64_t p = 0; p < pairs(columns); p++)
      for (int64_t k = 0; k < rows; k++)
        for (int64_t v = 2 * p; v < 2 * p + 2; v++) *panel++ = load(m + k * columns + v * L, columns - v * L);
  }

  // panels of the transpose of m [4 hidden, columns]: [vector of units][gates i f, gates g o][column][2]
  static void pack_gates(const T* m, int64_t hidden, int64_t columns, V* panel) {
    const Exchange exchange[4] = {Exchange(1), Exchange(2), Exchange(4), Exchange(8)};
    for (int64_t u = 0; u < many(hidden); u++)
      for (int gate = 0; gate < 4; gate++) {
        V* to = panel + (u * 2 + gate / 2) * columns * 2 + gate % 2;
        const int64_t lanes = hidden - u * L < L ? hidden - u * L : L;
        for (int64_t first = 0; first < columns; first += L) {
          V block[L];
          for (int64_t lane = 0; lane < L; lane++)
            block[lane] = lane < lanes ? load(m + (gate * hidden + u * L + lane) * columns + first, columns - first) : V{};
          transpose(block, exchange);
          for (int64_t k = 0; k < L && first + k < columns; k++) to[2 * (first + k)] = block[k];
        }
      }
  }

  // the places that one step of a transposition takes its values from
  struct Exchange {
    typename Integers<T>::type low, high;

    explicit Exchange(int step) {
      for (int lane = 0; lane < L; lane++) {
        low[lane] = lane & step ? L + lane - step : lane;
        high[lane] = lane & step ? L + lane : lane + step;
      }
    }
  };

  static inline void transpose(V* block, const Exchange* exchange) {
#if defined(__clang__)
    for (int i = 0; i < L; i++)
      for (int k = 0; k < i; k++) {
        const T own = block[i][k];
        block[i][k] = block[k][i];
        block[k][i] = own;
      }
#else
#pragma GCC unroll 4
    for (int step = 1, s = 0; step < L; step *= 2, s++)
#pragma GCC unroll 16
      for (int i = 0; i < L; i++)
        if (!(i & step)) {
          const V a = block[i], b = block[i + step];
          block[i] = __builtin_shuffle(a, b, exchange[s].low);
          block[i + step] = __builtin_shuffle(a, b, exchange[s].high);
        }
#endif
  }

  // sum[r] += sum over k < count of a[r * across + k * along] panel[k], for R rows of two vectors
  template <int R>
  static inline void product(const T* a, int64_t across, int64_t along, int64_t count, const V* panel, V (*sum)[2]) {
    V own[R][2];
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) own[r][0] = sum[r][0], own[r][1] = sum[r][1];
    for (int64_t k = 0; k < count; k++, a += along) {
      const V first = panel[2 * k], second = panel[2 * k + 1];
#pragma GCC unroll 16
      for (int r = 0; r < R; r++) {
        const T s = a[r * across];
        own[r][0] += s * first;
        own[r][1] += s * second;
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) sum[r][0] = own[r][0], sum[r][1] = own[r][1];
  }

  // calls f.run<R>(first) for blocks of at most ROWS rows whose sizes differ by at most one
  template <typename F> static void blocks(int64_t rows, F f) {
    const int64_t number = (rows + ROWS - 1) / ROWS;
    for (int64_t b = 0; b < number; b++) {
      const int64_t first = b * rows / number;
      by_size<ROWS>((b + 1) * rows / number - first, first, f);
    }
  }

  template <int R, typename F> static void by_size(int64_t size, int64_t first, F& f) {
    if constexpr (R > 0) {
      if (size == R) f.template run<R>(first);
      else by_size<R - 1>(size, first, f);
    }
  }
};

// c [rows, columns] = or += a [rows, count] with the panels of a matrix [count, columns]; a is given by its strides
template <typename T> struct Multiply {
  using P = Products<T>;
  using V = typename P::V;
  const T* a;
  int64_t across, along, count;
  const V* panels;
  T* c;
  int64_t columns;
  bool add;

  template <int R> void run(int64_t first) {
    for (int64_t p = 0; p < P::pairs(columns); p++) {
      V sum[R][2] = {};
      T* to = c + first * columns + 2 * p * P::L;
      const int64_t left = columns - 2 * p * P::L;
      if (add)
        for (int r = 0; r < R; r++)
          for (int v = 0; v < 2; v++) sum[r][v] = P::load(to + r * columns + v * P::L, left - v * P::L);
      P::template product<R>(a + first * across, across, along, count, panels + p * count * 2, sum);
      for (int r = 0; r < R; r++)
        for (int v = 0; v < 2; v++) P::store(to + r * columns + v * P::L, sum[r][v], left - v * P::L);
    }
  }
};

// ---- a layer

template <typename T> struct Layer {
  using P = Products<T>;
  using V = typename P::V;
  static constexpr int64_t L = P::L;

  const Pass& at;
  const int64_t tokens, inputs, hidden, units;  // vectors of units
  V* memory;
  T *gates, *cell, *squashed;  // of the block of examples at work
  T* out;

  explicit Layer(const Pass& pass)
      : at(pass), tokens(pass.tokens), inputs(pass.inputs), hidden(pass.hidden), units(P::many(pass.hidden)), memory(nullptr) {}

  ~Layer() { std::free(memory); }

  const T* input(int64_t example) const { return static_cast<const T*>(at.x) + example * tokens * inputs; }

  // ---- forward

  V *in_panels, *out_panels;
  T* spare;  // of gates, cell and squashed for one block, where the caller keeps none

  void forward() {
    const int64_t of_in = units * 4 * inputs, of_out = units * 4 * hidden;
    const int64_t kept = at.gates ? 0 : P::many(ROWS * tokens * 6 * hidden);
    memory = P::vectors(of_in + of_out + kept);
    in_panels = memory;
    out_panels = in_panels + of_in;
    spare = reinterpret_cast<T*>(out_panels + of_out);
    P::pack_gates(static_cast<const T*>(at.w_in), hidden, inputs, in_panels);
    P::pack_gates(static_cast<const T*>(at.w_out), hidden, hidden, out_panels);
    P::blocks(at.examples, Forward{*this});
  }

  void choose(int64_t first) {
    out = static_cast<T*>(at.out) + first * tokens * hidden;
    gates = at.gates ? static_cast<T*>(at.gates) + first * tokens * 4 * hidden : spare;
    cell = at.gates ? static_cast<T*>(at.cell) + first * tokens * hidden : spare + ROWS * tokens * 4 * hidden;
    squashed = at.gates ? static_cast<T*>(at.squashed) + first * tokens * hidden : spare + ROWS * tokens * 5 * hidden;
  }

  struct Forward {
    Layer& layer;

    template <int R> void run(int64_t first) {
      layer.choose(first);
      P::blocks(R * layer.tokens, Drive{layer, layer.input(first)});
      for (int64_t t = 0; t < layer.tokens; t++)
        for (int64_t u = 0; u < layer.units; u++) layer.template token<R>(t, u);
    }
  };

  // the products with the inputs, of rows of examples and tokens
  struct Drive {
    Layer& layer;
    const T* x;

    template <int R> void run(int64_t first) {
      const int64_t hidden = layer.hidden, inputs = layer.inputs;
      for (int64_t u = 0; u < layer.units; u++)
        for (int pair = 0; pair < 2; pair++) {
          V sum[R][2];
          for (int v = 0; v < 2; v++) {
            const V bias = P::load(static_cast<const T*>(layer.at.bias) + (2 * pair + v) * hidden + u * L, hidden - u * L);
            for (int r = 0; r < R; r++) sum[r][v] = bias;
          }
          P::template product<R>(x + first * inputs, inputs, 1, inputs, layer.in_panels + (u * 2 + pair) * inputs * 2, sum);
          for (int r = 0; r < R; r++)
            for (int v = 0; v < 2; v++)
              P::store(layer.gates + ((first + r) * 4 + 2 * pair + v) * hidden + u * L, sum[r][v], hidden - u * L);
        }
    }
  };

  template <int R> void token(int64_t t, int64_t u) {
    const int64_t left = hidden - u * L;
    V sum[2][R][2];
    for (int r = 0; r < R; r++)
      for (int gate = 0; gate < 4; gate++)
        sum[gate / 2][r][gate % 2] = P::load(gates + ((r * tokens + t) * 4 + gate) * hidden + u * L, left);
    for (int r = 0; r < R; r++)
      for (T* to : {cell, squashed, out}) __builtin_prefetch(to + (r * tokens + t) * hidden + u * L, 1);
    if (t > 0)
      for (int pair = 0; pair < 2; pair++)
        P::template product<R>(out + (t - 1) * hidden, tokens * hidden, 1, hidden, out_panels + (u * 2 + pair) * hidden * 2, sum[pair]);
    for (int r = 0; r < R; r++) {
      const int64_t place = r * tokens + t, where = place * hidden + u * L;
      const V i = sigmoid<T>(sum[0][r][0]), f = sigmoid<T>(sum[0][r][1]);
      const V g = hyperbolic_tangent<T>(sum[1][r][0]), o = sigmoid<T>(sum[1][r][1]);
      V c = i * g;
      if (t > 0) c += f * P::load(cell + where - hidden, left);
      const V s = hyperbolic_tangent<T>(c);
      const V each[4] = {i, f, g, o};
      for (int gate = 0; gate < 4; gate++) P::store(gates + (place * 4 + gate) * hidden + u * L, each[gate], left);
      P::store(cell + where, c, left);
      P::store(squashed + where, s, left);
      P::store(out + where, o * s, left);
    }
  }

  // ---- backward

  const Derivatives* d;
  V* carried;  // [ROWS, units] derivative by c that the next token hands to this one
  V* bias;     // [units, 4]
  V *in_rows, *out_rows;  // panels of inputs and of outputs at the previous token
  T* copy;                // [ROWS tokens, ROWS]
  const T* d_out;
  T* d_gates;      // [ROWS tokens, stride] derivatives by the gates before their functions
  int64_t stride;  // more than 4 hidden: rows a power of two apart would share a few places of the cache

  void backward(const Derivatives& derivatives) {
    d = &derivatives;
    const int64_t longest = ROWS * tokens, of_in = d->x ? P::pairs(inputs) * 8 * hidden : 0, of_out = P::pairs(hidden) * 8 * hidden;
    const int64_t of_in_rows = P::pairs(inputs) * 2 * longest, of_out_rows = P::pairs(hidden) * 2 * longest;
    stride = (P::many(4 * hidden) + 1) * L;
    memory = P::vectors(of_in + of_out + of_in_rows + of_out_rows + ROWS * units + 4 * units + longest * stride / L + P::many(longest * ROWS));
    in_panels = memory;
    out_panels = in_panels + of_in;
    in_rows = out_panels + of_out;
    out_rows = in_rows + of_in_rows;
    carried = out_rows + of_out_rows;
    bias = carried + ROWS * units;
    d_gates = reinterpret_cast<T*>(bias + 4 * units);
    copy = d_gates + longest * stride;
    if (d->x) P::pack(static_cast<const T*>(at.w_in), 4 * hidden, inputs, in_panels);
    P::pack(static_cast<const T*>(at.w_out), 4 * hidden, hidden, out_panels);
    for (int64_t i = 0; i < 4 * units; i++) bias[i] = V{};
    P::blocks(at.examples, Backward{*this});
    for (int64_t u = 0; u < units; u++)
      for (int gate = 0; gate < 4; gate++)
        P::store(static_cast<T*>(d->bias) + gate * hidden + u * L, bias[u * 4 + gate], hidden - u * L);
  }

  struct Backward {
    Layer& layer;

    template <int R> void run(int64_t first) { layer.template examples_back<R>(first); }
  };

  template <int R> void examples_back(int64_t first) {
    choose(first);
    const int64_t length = R * tokens;
    d_out = static_cast<const T*>(d->out) + first * tokens * hidden;
    for (int64_t i = 0; i < ROWS * units; i++) carried[i] = V{};
    for (int64_t t = tokens - 1; t >= 0; t--)
      for (int64_t u = 0; u < units; u += 2) token_back<R>(t, u);
    if (d->x)
      P::blocks(length, Multiply<T>{d_gates, stride, 1, 4 * hidden, in_panels, static_cast<T*>(d->x) + first * tokens * inputs, inputs, false});
    P::pack(input(first), length, inputs, in_rows);
    pack_previous(length);
    P::blocks(4 * hidden, Weights{*this, length, first > 0});
  }

  // the gradients of rows of both weights: the derivatives by the gates, transposed, times the inputs and the outputs
  struct Weights {
    Layer& layer;
    int64_t length;
    bool add;

    template <int R> void run(int64_t first) {
      T* copy = layer.copy;
      for (int64_t k = 0; k < length; k++) std::memcpy(copy + k * R, layer.d_gates + k * layer.stride + first, sizeof(T) * R);
      multiply<R>(layer.in_rows, static_cast<T*>(layer.d->w_in), layer.inputs, first);
      multiply<R>(layer.out_rows, static_cast<T*>(layer.d->w_out), layer.hidden, first);
    }

    template <int R> void multiply(const V* panels, T* gradient, int64_t columns, int64_t first) {
      Multiply<T>{layer.copy, 1, R, length, panels, gradient + first * columns, columns, add}.template run<R>(0);
    }
  };

  // panels of the outputs at the previous tokens, 0 before the first
  void pack_previous(int64_t length) {
    V* to = out_rows;
    for (int64_t p = 0; p < P::pairs(hidden); p++)
      for (int64_t k = 0; k < length; k++)
        for (int64_t v = 2 * p; v < 2 * p + 2; v++)
          *to++ = k % tokens ? P::load(out + (k - 1) * hidden + v * L, hidden - v * L) : V{};
  }

  template <int R> void token_back(int64_t t, int64_t u) {
    const int wide = u + 1 < units ? 2 : 1;
    for (int r = 0; r < R; r++) fetch(r * tokens + t, u);
    V sum[R][2] = {};
    if (t + 1 < tokens)
      P::template product<R>(d_gates + (t + 1) * stride, tokens * stride, 1, 4 * hidden, out_panels + u * 4 * hidden, sum);
    for (int v = 0; v < wide; v++)
      for (int r = 0; r < R; r++) gates_back(r, t, u + v, sum[r][v]);
  }

  // brings what the gates of two vectors of units need into the cache while the product is computed
  void fetch(int64_t place, int64_t u) const {
    for (int64_t i = u * L; i < (u + 2) * L && i < hidden; i += 64 / sizeof(T)) {
      for (int gate = 0; gate < 4; gate++) {
        __builtin_prefetch(gates + (place * 4 + gate) * hidden + i);
        __builtin_prefetch(d_gates + place * stride + gate * hidden + i, 1);
      }
      __builtin_prefetch(d_out + place * hidden + i);
      __builtin_prefetch(squashed + place * hidden + i);
      __builtin_prefetch(cell + (place > 0 ? place - 1 : 0) * hidden + i);
    }
  }

  // the derivatives by the gates before their functions, for one vector of units, from the derivative by their outputs
  void gates_back(int64_t r, int64_t t, int64_t u, V by_next) {
    const int64_t place = r * tokens + t, where = place * hidden + u * L, left = hidden - u * L;
    V each[4];
    for (int gate = 0; gate < 4; gate++) each[gate] = P::load(gates + (place * 4 + gate) * hidden + u * L, left);
    const V i = each[0], f = each[1], g = each[2], o = each[3], s = P::load(squashed + where, left);
    const V by_out = by_next + P::load(d_out + where, left);
    const V before = t > 0 ? P::load(cell + where - hidden, left) : V{};
    const V by_cell = carried[r * units + u] + by_out * o * (1 - s * s);
    carried[r * units + u] = by_cell * f;
    const V found[4] = {by_cell * g * i * (1 - i), by_cell * before * f * (1 - f), by_cell * i * (1 - g * g), by_out * s * o * (1 - o)};
    for (int gate = 0; gate < 4; gate++) {
      P::store(d_gates + place * stride + gate * hidden + u * L, found[gate], left);
      bias[u * 4 + gate] += found[gate];
    }
  }
};

template <typename T> int forward(const Pass* pass) {
  try {
    Layer<T>(*pass).forward();
    return 0;
  } catch (const std::bad_alloc&) {
    return 1;
  }
}

template <typename T> int backward(const Pass* pass, const Derivatives* derivatives) {
  try {
    Layer<T>(*pass).backward(*derivatives);
    return 0;
  } catch (const std::bad_alloc&) {
    return 1;
  }
}

}  // namespace

extern "C" {
int lstm_float(const Pass* pass) { return forward<float>(pass); }
int lstm_double(const Pass* pass) { return forward<double>(pass); }
int lstm_back_float(const Pass* pass, const Derivatives* derivatives) { return backward<float>(pass, derivatives); }
int lstm_back_double(const Pass* pass, const Derivatives* derivatives) { return backward<double>(pass, derivatives); }
}
