// An LSTM layer on a CPU, forward and backward.
//
// Every product is one of a few rows with a matrix that is packed into panels of two vectors: the sums stay in
// registers, and a panel comes from the core's second cache. The products with the inputs are taken for all tokens at
// once, those with the previous outputs token by token. Examples pass through a layer in blocks of at most ROWS, and no
// sum of an example depends on the others; sums over examples are in their order. No state is shared between calls.

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

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

// ---- what a caller passes; compiled/layers.py has the same structures

// Gates are in the order i, f, g, o. Examples come first, then tokens.
struct Pass {
  int64_t examples, tokens, inputs, hidden;
  const void* x;      // [examples, tokens, inputs]
  const void* w_in;   // [4 hidden, inputs]
  const void* w_out;  // [4 hidden, hidden], multiplied by the outputs at the previous token
  const void* bias;   // [4 hidden]
  void* state;        // [examples, tokens, 6 hidden], hidden rounded up to 64 bytes; null if no backward pass follows
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
  static constexpr double most = 708, shift = 6755399441055744;
  static constexpr double high = 0.693147180369123816490, low = 1.90821492927058770002e-10;  // of the logarithm of 2
  static constexpr int degree = 13, bits = 52, bias = 1023;
};

// exp(x) = scale + scale * rest, where rest is exact to rounding near x = 0; NaN stays
template <typename T, typename V = typename Vector<T>::type> inline void exponential(V x, V& scale, V& rest) {
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

  static int64_t many(int64_t values) { return (values + L - 1) / L; }             // vectors
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
            block[lane] = load(m + (gate * hidden + u * L + lane) * columns + first, lane < lanes ? columns - first : 0);
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
  static void rows(const T* a, int64_t across, int64_t along, int64_t count, const V* panel, V (*sum)[2]) {
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

  typedef void (*Rows)(const T*, int64_t, int64_t, int64_t, const V*, V (*)[2]);

  template <int... R> static Rows of_size(int64_t size, std::integer_sequence<int, R...>) {
    static constexpr Rows all[] = {rows<R + 1>...};
    return all[size - 1];
  }

  // the product for `size` rows, 1 to ROWS
  static Rows product(int64_t size) { return of_size(size, std::make_integer_sequence<int, ROWS>()); }

  // calls f(first, size) for blocks of at most ROWS of `count` rows; their sizes differ by at most one
  template <typename F> static void blocks(int64_t count, F f) {
    const int64_t number = (count + ROWS - 1) / ROWS;
    for (int64_t b = 0; b < number; b++) f(b * count / number, (b + 1) * count / number - b * count / number);
  }

  // c [size, columns] = or += a [size, count] with the panels of a matrix [count, columns]; a is given by its strides
  static void multiply(int64_t size, const T* a, int64_t across, int64_t along, int64_t count, const V* panels, T* c,
                       int64_t columns, bool add) {
    const Rows product_of_rows = product(size);
    for (int64_t p = 0; p < pairs(columns); p++) {
      V sum[ROWS][2];
      const int64_t at = 2 * p * L;
      for (int64_t r = 0; r < size; r++)
        for (int64_t v = 0; v < 2; v++)
          sum[r][v] = add ? load(c + r * columns + at + v * L, columns - at - v * L) : V{};
      product_of_rows(a, across, along, count, panels + p * count * 2, sum);
      for (int64_t r = 0; r < size; r++)
        for (int64_t v = 0; v < 2; v++) store(c + r * columns + at + v * L, sum[r][v], columns - at - v * L);
    }
  }
};

// ---- a layer

template <typename T> struct Layer {
  using P = Products<T>;
  using V = typename P::V;
  static constexpr int64_t L = P::L;

  // values of one unit's vector kept for the backward pass: the gates, c and tanh(c)
  struct State {
    V gate[4], cell, squashed;
  };

  const Pass& at;
  const int64_t tokens, inputs, hidden, units;  // vectors of units
  V* memory = nullptr;
  V *in_panels, *out_panels;
  State *spare = nullptr, *state;  // [tokens, units, examples of the block], of the block at work
  T* out;
  int64_t size;  // examples of the block

  explicit Layer(const Pass& pass)
      : at(pass), tokens(pass.tokens), inputs(pass.inputs), hidden(pass.hidden), units(P::many(pass.hidden)) {}

  ~Layer() { std::free(memory); }

  const T* input(int64_t example) const { return static_cast<const T*>(at.x) + example * tokens * inputs; }

  int64_t left(int64_t unit) const { return hidden - unit * L; }

  State& state_of(int64_t t, int64_t unit, int64_t r) const { return state[(t * units + unit) * size + r]; }

  void choose(int64_t first, int64_t count) {
    size = count;
    out = static_cast<T*>(at.out) + first * tokens * hidden;
    state = at.state ? static_cast<State*>(at.state) + first * tokens * units : spare;
  }

  // ---- forward

  void forward() {
    const int64_t of_in = units * 4 * inputs, of_out = units * 4 * hidden;
    memory = P::vectors(of_in + of_out + (at.state ? 0 : ROWS * tokens * units * 6));
    in_panels = memory;
    out_panels = in_panels + of_in;
    spare = reinterpret_cast<State*>(out_panels + of_out);
    P::pack_gates(static_cast<const T*>(at.w_in), hidden, inputs, in_panels);
    P::pack_gates(static_cast<const T*>(at.w_out), hidden, hidden, out_panels);
    P::blocks(at.examples, [&](int64_t first, int64_t count) {
      choose(first, count);
      P::blocks(count * tokens, [&](int64_t row, int64_t rows) { drive(input(first), row, rows); });
      for (int64_t t = 0; t < tokens; t++)
        for (int64_t u = 0; u < units; u++) token(t, u);
    });
  }

  // the products with the inputs x of the block, of some rows of examples and tokens
  void drive(const T* x, int64_t row, int64_t rows) {
    const auto product = P::product(rows);
    for (int64_t u = 0; u < units; u++)
      for (int64_t pair = 0; pair < 2; pair++) {
        V sum[ROWS][2];
        for (int64_t v = 0; v < 2; v++) {
          const V bias = P::load(static_cast<const T*>(at.bias) + (2 * pair + v) * hidden + u * L, left(u));
          for (int64_t r = 0; r < rows; r++) sum[r][v] = bias;
        }
        product(x + row * inputs, inputs, 1, inputs, in_panels + (u * 2 + pair) * inputs * 2, sum);
        for (int64_t r = 0; r < rows; r++) {
          State& s = state_of((row + r) % tokens, u, (row + r) / tokens);
          s.gate[2 * pair] = sum[r][0];
          s.gate[2 * pair + 1] = sum[r][1];
        }
      }
  }

  void token(int64_t t, int64_t u) {
    V sum[2][ROWS][2] = {};
    if (t > 0)
      for (int64_t pair = 0; pair < 2; pair++)
        P::product(size)(out + (t - 1) * hidden, tokens * hidden, 1, hidden, out_panels + (u * 2 + pair) * hidden * 2,
                         sum[pair]);
    for (int64_t r = 0; r < size; r++) {
      State& s = state_of(t, u, r);
      const V i = sigmoid<T>(s.gate[0] + sum[0][r][0]), f = sigmoid<T>(s.gate[1] + sum[0][r][1]);
      const V g = hyperbolic_tangent<T>(s.gate[2] + sum[1][r][0]), o = sigmoid<T>(s.gate[3] + sum[1][r][1]);
      s.cell = t > 0 ? i * g + f * state_of(t - 1, u, r).cell : i * g;
      s.squashed = hyperbolic_tangent<T>(s.cell);
      s.gate[0] = i;
      s.gate[1] = f;
      s.gate[2] = g;
      s.gate[3] = o;
      P::store(out + (r * tokens + t) * hidden + u * L, o * s.squashed, left(u));
    }
  }

  // ---- backward

  const Derivatives* d;
  V (*carried)[ROWS];        // [units] derivative by c that the next token hands to this one
  V (*bias)[4];              // [units]
  V *in_rows, *out_rows;     // panels of inputs and of outputs at the previous token
  T* copy;                   // [ROWS tokens, ROWS]
  const T* d_out;
  T* d_gates;                // [ROWS tokens, stride] derivatives by the gates before their functions
  int64_t stride;            // more than 4 hidden: rows a power of two apart would share a few places of the cache

  void backward(const Derivatives& derivatives) {
    d = &derivatives;
    const int64_t longest = ROWS * tokens;
    const int64_t of_in = d->x ? P::pairs(inputs) * 8 * hidden : 0, of_out = P::pairs(hidden) * 8 * hidden;
    const int64_t of_in_rows = P::pairs(inputs) * 2 * longest, of_out_rows = P::pairs(hidden) * 2 * longest;
    stride = (P::many(4 * hidden) + 1) * L;
    const int64_t of_gates = longest * stride / L, of_copy = P::many(longest * ROWS);
    memory = P::vectors(of_in + of_out + of_in_rows + of_out_rows + (ROWS + 4) * units + of_gates + of_copy);
    in_panels = memory;
    out_panels = in_panels + of_in;
    in_rows = out_panels + of_out;
    out_rows = in_rows + of_in_rows;
    carried = reinterpret_cast<V(*)[ROWS]>(out_rows + of_out_rows);
    bias = reinterpret_cast<V(*)[4]>(carried + units);
    d_gates = reinterpret_cast<T*>(bias + units);
    copy = d_gates + longest * stride;
    if (d->x) P::pack(static_cast<const T*>(at.w_in), 4 * hidden, inputs, in_panels);
    P::pack(static_cast<const T*>(at.w_out), 4 * hidden, hidden, out_panels);
    std::memset(bias, 0, static_cast<size_t>(units) * 4 * BYTES);
    P::blocks(at.examples, [&](int64_t first, int64_t count) { block_back(first, count); });
    for (int64_t u = 0; u < units; u++)
      for (int64_t gate = 0; gate < 4; gate++)
        P::store(static_cast<T*>(d->bias) + gate * hidden + u * L, bias[u][gate], left(u));
  }

  void block_back(int64_t first, int64_t count) {
    choose(first, count);
    const int64_t length = size * tokens;
    d_out = static_cast<const T*>(d->out) + first * tokens * hidden;
    std::memset(carried, 0, static_cast<size_t>(units) * ROWS * BYTES);
    for (int64_t t = tokens - 1; t >= 0; t--)
      for (int64_t u = 0; u < units; u += 2) token_back(t, u);
    if (d->x) {
      T* d_x = static_cast<T*>(d->x) + first * tokens * inputs;
      P::blocks(length, [&](int64_t row, int64_t rows) {
        P::multiply(rows, d_gates + row * stride, stride, 1, 4 * hidden, in_panels, d_x + row * inputs, inputs, false);
      });
    }
    P::pack(input(first), length, inputs, in_rows);
    pack_previous(length);
    P::blocks(4 * hidden, [&](int64_t row, int64_t rows) { weights_back(row, rows, length, first > 0); });
  }

  // panels of the outputs at the previous tokens, 0 before the first
  void pack_previous(int64_t length) {
    V* to = out_rows;
    for (int64_t p = 0; p < P::pairs(hidden); p++)
      for (int64_t k = 0; k < length; k++)
        for (int64_t v = 2 * p; v < 2 * p + 2; v++)
          *to++ = k % tokens ? P::load(out + (k - 1) * hidden + v * L, left(v)) : V{};
  }

  // the gradients of some rows of both weights: the derivatives by the gates, transposed, times inputs and outputs
  void weights_back(int64_t row, int64_t rows, int64_t length, bool add) {
    for (int64_t k = 0; k < length; k++) std::memcpy(copy + k * rows, d_gates + k * stride + row, sizeof(T) * rows);
    P::multiply(rows, copy, 1, rows, length, in_rows, static_cast<T*>(d->w_in) + row * inputs, inputs, add);
    P::multiply(rows, copy, 1, rows, length, out_rows, static_cast<T*>(d->w_out) + row * hidden, hidden, add);
  }

  void token_back(int64_t t, int64_t u) {
    V sum[ROWS][2] = {};
    if (t + 1 < tokens)
      P::product(size)(d_gates + (t + 1) * stride, tokens * stride, 1, 4 * hidden, out_panels + u * 4 * hidden, sum);
    for (int64_t v = 0; v < 2 && u + v < units; v++)
      for (int64_t r = 0; r < size; r++) gates_back(r, t, u + v, sum[r][v]);
  }

  // the derivatives by the gates of one vector of units; `by_next` is that by their outputs through the next token
  void gates_back(int64_t r, int64_t t, int64_t u, V by_next) {
    const State& s = state_of(t, u, r);
    const V i = s.gate[0], f = s.gate[1], g = s.gate[2], o = s.gate[3];
    const int64_t place = r * tokens + t;
    const V by_out = by_next + P::load(d_out + place * hidden + u * L, left(u));
    const V by_cell = carried[u][r] + by_out * o * (1 - s.squashed * s.squashed);
    const V before = t > 0 ? state_of(t - 1, u, r).cell : V{};
    carried[u][r] = by_cell * f;
    const V found[4] = {by_cell * g * i * (1 - i), by_cell * before * f * (1 - f), by_cell * i * (1 - g * g),
                        by_out * s.squashed * o * (1 - o)};
    for (int64_t gate = 0; gate < 4; gate++) {
      P::store(d_gates + place * stride + gate * hidden + u * L, found[gate], left(u));
      bias[u][gate] += found[gate];
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
