// Local phases of dense networks (linear layers with ReLU between them, cross-entropy) on a CPU.
//
// One call takes clients through all their local steps, one client after another, with everything that a step touches
// in the cache: gather the rows, forward, softmax, backward, update. No state is shared between clients and no sum
// depends on how clients are divided among calls, so results are the same for any number of threads. Vectors of 64
// bytes are written out, which fixes the order of every sum; a CPU with narrower registers takes several per vector.
//
// Rows of weights, and rows of activations, are padded with zeros to whole vectors in the working copies.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

namespace {

constexpr int64_t BLOCK = 64;  // examples that pass through the network together

template <typename T> struct Vector { typedef T type __attribute__((vector_size(64), may_alias)); };
template <typename T> struct Integers;
template <> struct Integers<float> { typedef int32_t type __attribute__((vector_size(64), may_alias)); };
template <> struct Integers<double> { typedef int64_t type __attribute__((vector_size(64), may_alias)); };

// ---- what a caller passes; compiled/dense.py has the same structures

struct Problem {
  const int64_t* sizes;  // [layers + 1] features of the input, of every hidden layer, and classes
  const void* x;         // [T, sizes[0]] examples, of the type of the weights; bytes if there is a scale
  const void* scale;     // [channels] a byte b of channel c stands for b * scale[c] - shift[c]; or null
  const void* shift;     // [channels]
  const int64_t* y;      // [T] labels
  int64_t layers;        // number of linear layers
  int64_t plane;         // bytes of a channel
};

struct Phase {
  const int64_t* rows;    // rows of x, client by client
  const int64_t* offset;  // [clients] where a client's rows begin
  const int64_t* count;   // [clients] examples of an epoch
  const int64_t* steps;   // [clients] local steps
  const double* lr;       // [clients] learning rates
  const void* anchor;     // [P], or null
  const void* shift;      // [clients, P] added to the gradient, or null
  const void* start;      // first models
  void* w;                // [clients, P] last models
  const void* moments;    // first momentum, or null
  void* buffer;           // [clients, P] last momentum, or null
  int64_t clients;
  uint64_t key;           // of the order of the examples
  int64_t shuffled;       // whether every epoch has an order of its own, else the stored one
  int64_t width;          // largest number of examples of a batch
  int64_t nesterov;
  int64_t start_stride;   // P, or 0 if all clients start with one model
  int64_t moments_stride; // P, or 0 if it is the same for all clients
  double clip;            // longest gradient; infinity for no clipping
  double decay;           // weight decay
  double momentum;
  double pull;            // strength of pull * (w - anchor), added to the gradient
};

struct Measurement {
  const int64_t* rows;    // rows of x, client by client
  const int64_t* offset;  // [clients] where a client's rows begin
  const int64_t* count;   // [clients] examples
  const void* weight;     // weights of the examples in the gradient and in the loss, as long as `rows`; or null: the
                          // gradient is that of their mean loss
  const void* w;          // [P], or [clients, P]
  void* gradient;         // [clients, P] weighted sums of the examples' gradients, or null
  double* loss;           // [clients] sum of the losses, in nats
  double* hits;           // [clients] number of correct examples, or null
  int64_t clients;
  int64_t own;            // whether w holds a model for every client
};

// ---- sums and maxima over the lanes of a vector, halving it in a fixed order

template <typename T, int BYTES> struct Part { typedef T type __attribute__((vector_size(BYTES), may_alias)); };

template <typename T, int BYTES, typename Join> inline T across(typename Part<T, BYTES>::type v, Join join) {
  if constexpr (BYTES == 16) {
    if constexpr (sizeof(T) == 4) return join(join(v[0], v[2]), join(v[1], v[3]));
    else return join(v[0], v[1]);
  } else {
    typename Part<T, BYTES / 2>::type low, high;
    std::memcpy(&low, &v, BYTES / 2);
    std::memcpy(&high, reinterpret_cast<const char*>(&v) + BYTES / 2, BYTES / 2);
    return across<T, BYTES / 2>(join(low, high), join);
  }
}

template <typename T> inline T total(typename Vector<T>::type v) {
  return across<T, 64>(v, [](auto a, auto b) { return a + b; });
}

template <typename T> inline T largest(typename Vector<T>::type v) {
  return across<T, 64>(v, [](auto a, auto b) { return a > b ? a : b; });
}

#if defined(__clang__)
#define FEDBENCH_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define FEDBENCH_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, Lanes{__VA_ARGS__})
#endif

// the totals of four vectors at once: two vectors become one of half-sums, until every 16 bytes belong to one of them
inline void totals(const Vector<float>::type* v, float* out) {
  using V = Vector<float>::type;
  using Lanes = Integers<float>::type;
  const auto halves = [](V a, V b) {
    return FEDBENCH_SHUFFLE(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
           FEDBENCH_SHUFFLE(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
  };
  const V first = halves(v[0], v[1]), second = halves(v[2], v[3]);
  V sum = FEDBENCH_SHUFFLE(first, second, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
          FEDBENCH_SHUFFLE(first, second, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
  sum += FEDBENCH_SHUFFLE(sum, sum, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
  for (int o = 0; o < 4; o++) out[o] = sum[4 * o] + sum[4 * o + 1];
}

inline void totals(const Vector<double>::type* v, double* out) {
  using V = Vector<double>::type;
  using Lanes = Integers<double>::type;
  const auto halves = [](V a, V b) {
    return FEDBENCH_SHUFFLE(a, b, 0, 1, 2, 3, 8, 9, 10, 11) + FEDBENCH_SHUFFLE(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
  };
  const V first = halves(v[0], v[1]), second = halves(v[2], v[3]);
  const V sum = FEDBENCH_SHUFFLE(first, second, 0, 1, 4, 5, 8, 9, 12, 13) +
                FEDBENCH_SHUFFLE(first, second, 2, 3, 6, 7, 10, 11, 14, 15);
  for (int o = 0; o < 4; o++) out[o] = sum[2 * o] + sum[2 * o + 1];
}

// ---- kernels on register blocks

// Blocks of sums that fit into the registers. How a product is divided into blocks, and a vector into registers, changes
// no sum.
#if defined(__AVX512F__)
constexpr int REGISTER = 64, DOT_ROWS = 5, BACK_ROWS = 5, COLUMNS = 4;  // bytes; rows and registers of a block
#elif defined(__AVX__)
constexpr int REGISTER = 32, DOT_ROWS = 3, BACK_ROWS = 4, COLUMNS = 2;
#else
constexpr int REGISTER = 16, DOT_ROWS = 3, BACK_ROWS = 4, COLUMNS = 2;
#endif
constexpr int PARTS = 64 / REGISTER;  // registers of a vector
constexpr int64_t STRETCH = 64;       // vectors of a row that stay in the first cache while every part of them is read
// vectors of every row that stay there while a gradient is added up; all of them where that has not been timed
constexpr int64_t STRIP = PARTS > 1 ? 4 : int64_t{1} << 40;

template <typename T> using Register = typename Part<T, REGISTER>::type;

// Keeps a value in a register where a vector takes several. Compilers would read what is used several times from memory
// again for every use; and GCC, tuned for some processors, would round a sum that is alone in its loop twice per term.
template <typename V> inline V held(V value) {
  if constexpr (PARTS > 1) {
#if defined(__x86_64__)
    asm("" : "+v"(value));
#elif defined(__aarch64__)
    asm("" : "+w"(value));
#endif
  }
  return value;
}

// out[b][o] = <h[b], w[o]>; rows of h and w are `n` vectors long
template <typename T, int B, int O>
inline void dots(const typename Vector<T>::type* h, const typename Vector<T>::type* w, int64_t n, T* out, int64_t stride) {
  using V = typename Vector<T>::type;
  using R = Register<T>;
  R sum[PARTS][B][O] = {};
  for (int64_t first = 0, end; first < n; first = end) {
    end = PARTS == 1 ? n : std::min(first + STRETCH, n);
    for (int p = 0; p < PARTS; p++) {
      const R *left = reinterpret_cast<const R*>(h) + p, *right = reinterpret_cast<const R*>(w) + p;
      R part[B][O];
      std::memcpy(part, sum[p], sizeof(part));
      for (int64_t i = first; i < end; i++) {
        R a[B];
#pragma GCC unroll 8
        for (int b = 0; b < B; b++) a[b] = held(left[(b * n + i) * PARTS]);
#pragma GCC unroll 8
        for (int o = 0; o < O; o++) {
          const R column = held(right[(o * n + i) * PARTS]);
#pragma GCC unroll 8
          for (int b = 0; b < B; b++) part[b][o] = held(part[b][o] + a[b] * column);
        }
      }
      std::memcpy(sum[p], part, sizeof(part));
    }
  }
#pragma GCC unroll 8
  for (int b = 0; b < B; b++) {
    V four[4] = {};
    T found[4];
#pragma GCC unroll 8
    for (int o = 0; o < O; o++)
#pragma GCC unroll 8
      for (int p = 0; p < PARTS; p++) std::memcpy(reinterpret_cast<char*>(&four[o]) + p * REGISTER, &sum[p][b][o], REGISTER);
    totals(four, found);
#pragma GCC unroll 8
    for (int o = 0; o < O; o++) out[b * stride + o] = found[o];
  }
}

// out[r][i] (+)= sum over k < count of a[r * across + k * along] m[k][i], for R rows and I registers of rows of n
template <typename T, int R, int I>
inline void combine(const T* a, int64_t across, int64_t along, const Register<T>* m, int64_t n, int64_t count,
                    Register<T>* out, bool add) {
  Register<T> sum[R][I];
#pragma GCC unroll 8
  for (int r = 0; r < R; r++)
#pragma GCC unroll 8
    for (int i = 0; i < I; i++) sum[r][i] = add ? out[r * n + i] : Register<T>{};
  for (int64_t k = 0; k < count; k++) {
    Register<T> row[I];
#pragma GCC unroll 8
    for (int i = 0; i < I; i++) row[i] = held(m[k * n + i]);
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) {
      const T s = a[r * across + k * along];
#pragma GCC unroll 8
      for (int i = 0; i < I; i++) sum[r][i] += row[i] * s;
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; r++)
#pragma GCC unroll 8
    for (int i = 0; i < I; i++) out[r * n + i] = sum[r][i];
}

// e^x for x <= 0: 2^k e^r with |r| <= ln(2)/2, and Taylor's series for e^r; 0 below the range of normal numbers
template <typename T> inline typename Vector<T>::type exponential(typename Vector<T>::type x) {
  using V = typename Vector<T>::type;
  using Z = typename Integers<T>::type;
  constexpr bool single = sizeof(T) == 4;
  constexpr int terms = single ? 7 : 13;
  const V least = V{} + T(single ? -87.0 : -708.0), zero{};
  const auto vanishes = x < least;  // not so for a NaN, which stays
  x = vanishes ? least : x;
  const Z k = __builtin_convertvector(x * T(1.44269504088896340736) - T(0.5), Z);
  const V whole = __builtin_convertvector(k, V);
  // ln 2 in two parts, of which the first has few digits
  const V r = x - whole * T(0.693145751953125) - whole * T(1.4286068203094172e-06);
  V sum = V{} + T(1);
#pragma GCC unroll 16
  for (int t = terms; t >= 1; t--) sum = sum * r * T(1.0 / t) + T(1);
  const Z bits = single ? (k + 127) << 23 : (k + 1023) << (single ? 0 : 52);
  V power;
  std::memcpy(&power, &bits, 64);
  return vanishes ? zero : sum * power;
}

// ---- a network

// Vectors that are returned to the system when their owner is, also if its constructor runs out of memory.
template <typename V> struct Room {
  V* at = nullptr;

  Room() = default;
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  ~Room() { std::free(at); }

  // allocates `count` vectors of zeros
  void hold(int64_t count) {
    at = static_cast<V*>(std::aligned_alloc(64, static_cast<size_t>(count > 0 ? count : 1) * 64));
    if (!at) throw std::bad_alloc();
    clear(count);
  }

  void clear(int64_t count) { std::memset(at, 0, static_cast<size_t>(count) * 64); }

  operator V*() const { return at; }
};

template <typename T> struct Network {
  using V = typename Vector<T>::type;
  static constexpr int64_t L = 64 / sizeof(T);

  struct Layer {
    int64_t inputs, outputs;
    int64_t in, out;        // vectors of a row
    int64_t weight, bias;   // where they begin in a working copy, in vectors
    V* h;                   // [BLOCK, in] what the layer reads
    V* d;                   // [BLOCK, out] its outputs, then the derivative of the loss by them
  };

  const Problem& problem;
  std::vector<Layer> layer;
  int64_t layers, size = 0, values = 0;  // vectors of a working copy, parameters
  Room<V> scratch;

  // Vectors of a row of `values` values. Long rows have an odd number, so that consecutive ones do not compete for the
  // same few places in the cache.
  static int64_t row(int64_t values) {
    const int64_t whole = (values + L - 1) / L;
    return whole < 16 ? whole : whole | 1;
  }

  explicit Network(const Problem& p) : problem(p), layer(p.layers), layers(p.layers) {
    int64_t width = 0;  // vectors of the activations and derivatives of one example
    for (int64_t l = 0; l < layers; l++) {
      Layer& at = layer[l];
      at.inputs = p.sizes[l];
      at.outputs = p.sizes[l + 1];
      at.in = row(at.inputs);
      at.out = row(at.outputs);
      at.weight = size;
      at.bias = size + at.outputs * at.in;
      size = at.bias + at.out;
      values += at.outputs * (at.inputs + 1);
      width += at.in + at.out;
    }
    scratch.hold(BLOCK * width);
    V* free = scratch;
    for (int64_t l = 0; l < layers; l++) {
      layer[l].h = free;
      layer[l].d = free + BLOCK * layer[l].in;
      free = layer[l].d + BLOCK * layer[l].out;
    }
  }

  void pack(const T* flat, V* copy) const {
    for (int64_t l = 0; l < layers; l++) {
      const Layer& at = layer[l];
      for (int64_t o = 0; o < at.outputs; o++, flat += at.inputs)
        std::memcpy(copy + at.weight + o * at.in, flat, sizeof(T) * at.inputs);
      std::memcpy(copy + at.bias, flat, sizeof(T) * at.outputs);
      flat += at.outputs;
    }
  }

  void unpack(const V* copy, T* flat) const {
    for (int64_t l = 0; l < layers; l++) {
      const Layer& at = layer[l];
      for (int64_t o = 0; o < at.outputs; o++, flat += at.inputs)
        std::memcpy(flat, copy + at.weight + o * at.in, sizeof(T) * at.inputs);
      std::memcpy(flat, copy + at.bias, sizeof(T) * at.outputs);
      flat += at.outputs;
    }
  }

  void gather(const int64_t* rows, int64_t m) {
    const int64_t width = layer[0].inputs;
    for (int64_t b = 0; b < m; b++) {
      T* to = reinterpret_cast<T*>(layer[0].h + b * layer[0].in);
      if (!problem.scale) {
        std::memcpy(to, static_cast<const T*>(problem.x) + rows[b] * width, sizeof(T) * width);
        continue;
      }
      const uint8_t* from = static_cast<const uint8_t*>(problem.x) + rows[b] * width;
      const T *scale = static_cast<const T*>(problem.scale), *shift = static_cast<const T*>(problem.shift);
      for (int64_t at = 0; at < width; at += problem.plane, scale++, shift++) {
        for (int64_t i = at; i < at + problem.plane; i++) to[i] = static_cast<T>(from[i]) * *scale;
        asm volatile("" ::: "memory");  // rounded twice, as elsewhere: not to be fused into one operation
        for (int64_t i = at; i < at + problem.plane; i++) to[i] -= *shift;
      }
    }
  }

  // the logits of m gathered examples, in d of the last layer
  void forward(const V* w, int64_t m) {
    for (int64_t l = 0; l < layers; l++) {
      const Layer& at = layer[l];
      T* out = reinterpret_cast<T*>(at.d);
      const int64_t stride = at.out * L;
      const V* weight = w + at.weight;
      int64_t o = 0;
      for (; o + 4 <= at.outputs; o += 4) products<4>(at, weight + o * at.in, m, out + o, stride);
      for (; o + 2 <= at.outputs; o += 2) products<2>(at, weight + o * at.in, m, out + o, stride);
      for (; o < at.outputs; o++) products<1>(at, weight + o * at.in, m, out + o, stride);
      const V zero{};
      for (int64_t b = 0; b < m; b++)
        for (int64_t i = 0; i < at.out; i++) {
          const V z = at.d[b * at.out + i] + w[at.bias + i];
          if (l + 1 < layers)
            layer[l + 1].h[b * at.out + i] = z < zero ? zero : z;  // a NaN stays
          else
            at.d[b * at.out + i] = z;
        }
    }
  }

  template <int O> void products(const Layer& at, const V* w, int64_t m, T* out, int64_t stride) {
    const int64_t n = at.in;
    int64_t b = 0;
    for (; b + DOT_ROWS <= m; b += DOT_ROWS) dots<T, DOT_ROWS, O>(at.h + b * n, w, n, out + b * stride, stride);
    for (; b + 2 <= m; b += 2) dots<T, 2, O>(at.h + b * n, w, n, out + b * stride, stride);
    for (; b < m; b++) dots<T, 1, O>(at.h + b * n, w, n, out + b * stride, stride);
  }

  // Logits of m examples -> their weights times (probabilities - labels), in place; adds up losses and hits where asked.
  // The weights are all `share`, or those given, which multiply the losses too.
  void residual(const int64_t* rows, int64_t m, T share, const T* weight, double* loss, double* hits) {
    const Layer& last = layer[layers - 1];
    const int64_t classes = last.outputs, whole = classes / L;  // vectors without padding
    const V zero{};
    V lane;
    for (int64_t k = 0; k < L; k++) lane[k] = static_cast<T>(k);
    const auto real = lane < static_cast<T>(classes % L);  // lanes of the vector after them that are classes
    const auto padded = [&](int64_t i, V v, V padding) {
      return i < whole ? v : i > whole ? padding : real ? v : padding;
    };
    for (int64_t b = 0; b < m; b++) {
      T* z = reinterpret_cast<T*>(last.d + b * last.out);
      const int64_t label = problem.y[rows[b]];
      V* row = last.d + b * last.out;
      if (hits) *hits += predicted(z, classes) == label;
      const V first = zero + z[0];
      V top = first;
      for (int64_t i = 0; i < last.out; i++) {
        const V v = padded(i, row[i], first);
        top = v > top ? v : top;
      }
      const T most = largest<T>(top), own = z[label] - most;
      V part{};
      for (int64_t i = 0; i < last.out; i++) part += row[i] = padded(i, exponential<T>(row[i] - most), zero);
      const T sum = total<T>(part);  // NaN if a logit is
      if (weight) share = weight[b];
      if (loss) *loss += (weight ? static_cast<double>(share) : 1.0) * static_cast<double>(std::log(sum) - own);
      const T factor = share / sum;
      for (int64_t i = 0; i < last.out; i++) row[i] *= factor;
      z[label] -= share;
    }
  }

  // the class with the largest logit, or with the first NaN
  static int64_t predicted(const T* z, int64_t classes) {
    int64_t top = 0;
    for (int64_t k = 1; k < classes; k++)
      if (z[k] > z[top] || (std::isnan(z[k]) && !std::isnan(z[top]))) top = k;
    return top;
  }

  // the derivatives of the loss by the outputs of all layers but the last, whose d is given
  void backward(const V* w, int64_t m) {
    for (int64_t l = layers - 1; l > 0; l--) {
      const Layer &at = layer[l], &below = layer[l - 1];
      const T* d = reinterpret_cast<const T*>(at.d);
      const int64_t stride = at.out * L;
      const auto* weight = registers(w + at.weight);
      auto* out = registers(below.d);
      int64_t i = 0;
      for (; i + COLUMNS <= at.in * PARTS; i += COLUMNS) products_back<COLUMNS>(d, stride, weight + i, at, m, out + i);
      for (; i < at.in * PARTS; i++) products_back<1>(d, stride, weight + i, at, m, out + i);
      const V zero{};
      for (int64_t j = 0; j < m * at.in; j++) below.d[j] = at.h[j] > zero ? below.d[j] : zero;
    }
  }

  template <int I>
  void products_back(const T* d, int64_t stride, const Register<T>* w, const Layer& at, int64_t m, Register<T>* out) {
    const int64_t n = at.in * PARTS;
    int64_t b = 0;
    for (; b + BACK_ROWS <= m; b += BACK_ROWS)
      combine<T, BACK_ROWS, I>(d + b * stride, stride, 1, w, n, at.outputs, out + b * n, false);
    for (; b < m; b++) combine<T, 1, I>(d + b * stride, stride, 1, w, n, at.outputs, out + b * n, false);
  }

  // target += factor times the gradient that belongs to the d of all layers; d is overwritten
  void accumulate(V* target, int64_t m, T factor) {
    for (int64_t l = 0; l < layers; l++) {
      const Layer& at = layer[l];
      if (factor != 1)
        for (int64_t j = 0; j < m * at.out; j++) at.d[j] *= factor;
      const T* d = reinterpret_cast<const T*>(at.d);
      const int64_t stride = at.out * L;
      for (int64_t first = 0; first < at.in; first += STRIP) {
        const int64_t end = std::min(first + STRIP, at.in);
        V* to = target + at.weight;
        int64_t o = 0;
        for (; o + 4 <= at.outputs; o += 4) update<4>(d + o, stride, at, m, first, end, to + o * at.in);
        for (; o + 2 <= at.outputs; o += 2) update<2>(d + o, stride, at, m, first, end, to + o * at.in);
        for (; o < at.outputs; o++) update<1>(d + o, stride, at, m, first, end, to + o * at.in);
      }
      for (int64_t i = 0; i < at.out; i++) {
        V sum = target[at.bias + i];
        for (int64_t b = 0; b < m; b++) sum += at.d[b * at.out + i];
        target[at.bias + i] = sum;
      }
    }
  }

  template <int O>
  void update(const T* d, int64_t stride, const Layer& at, int64_t m, int64_t first, int64_t end, V* w) {
    const int64_t n = at.in * PARTS;
    const auto* h = registers(at.h);
    auto* out = registers(w);
    int64_t i = first * PARTS;
    for (; i + COLUMNS <= end * PARTS; i += COLUMNS) combine<T, O, COLUMNS>(d, 1, stride, h + i, n, m, out + i, true);
    for (; i < end * PARTS; i++) combine<T, O, 1>(d, 1, stride, h + i, n, m, out + i, true);
  }

  static Register<T>* registers(V* v) { return reinterpret_cast<Register<T>*>(v); }
  static const Register<T>* registers(const V* v) { return reinterpret_cast<const Register<T>*>(v); }
};

// ---- the order of the examples, as in fedbench.core.randomness.fold_in and simulation/batches.py

inline uint64_t fold_in(uint64_t base, uint64_t coordinate) {
  uint64_t x = (coordinate + 1) * 0x9E3779B97F4A7C15ull + base;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

struct Order {
  struct Place {
    uint64_t hash;
    int64_t row;
  };
  std::vector<Place> places;
  std::vector<int64_t> rows;

  // the rows of an epoch, ordered by hashes of (epoch, row)
  const int64_t* epoch(const int64_t* stored, int64_t n, uint64_t key, int64_t number) {
    places.resize(n);
    rows.resize(n);
    const uint64_t base = fold_in(key, static_cast<uint64_t>(number));
    for (int64_t i = 0; i < n; i++) places[i] = {fold_in(base, static_cast<uint64_t>(stored[i])) >> 1, stored[i]};
    std::stable_sort(places.begin(), places.end(), [](const Place& a, const Place& b) { return a.hash < b.hash; });
    for (int64_t i = 0; i < n; i++) rows[i] = places[i].row;
    return rows.data();
  }
};

// ---- a solver

template <typename T> struct Solver {
  using V = typename Vector<T>::type;
  Network<T> net;
  const Phase& phase;
  Room<V> w, gradient, buffer, anchor, shift;
  Order order;

  Solver(const Problem& problem, const Phase& p) : net(problem), phase(p) {
    const int64_t added = p.anchor || p.shift ? net.size : 0;
    w.hold(net.size);
    gradient.hold(stored() ? net.size : 0);
    buffer.hold(p.buffer ? net.size : 0);
    anchor.hold(added);
    shift.hold(added);
    if (p.anchor) net.pack(static_cast<const T*>(p.anchor), anchor);
  }

  void client(int64_t c) {
    w.clear(net.size);  // a client that diverged has left numbers in the padding that are not finite
    net.pack(static_cast<const T*>(phase.start) + c * phase.start_stride, w);
    if (phase.buffer) {
      buffer.clear(net.size);
      net.pack(static_cast<const T*>(phase.moments) + c * phase.moments_stride, buffer);
    }
    if (phase.shift) net.pack(static_cast<const T*>(phase.shift) + c * net.values, shift);
    const int64_t n = phase.count[c], per_epoch = (n + phase.width - 1) / phase.width;
    const int64_t *stored = phase.rows + phase.offset[c], *rows = stored;
    for (int64_t t = 0; n > 0 && t < phase.steps[c]; t++) {
      const int64_t at = t % per_epoch * phase.width, m = n - at < phase.width ? n - at : phase.width;
      if (at == 0 && phase.shuffled) rows = order.epoch(stored, n, phase.key, t / per_epoch);
      step(rows + at, m, static_cast<T>(phase.lr[c]));
    }
    net.unpack(w, static_cast<T*>(phase.w) + c * net.values);
    if (phase.buffer) net.unpack(buffer, static_cast<T*>(phase.buffer) + c * net.values);
  }

  // whether a step needs the gradient; else the update is made of the products that would give it
  bool stored() const { return !std::isinf(phase.clip) || phase.buffer || phase.width > BLOCK; }

  void step(const int64_t* rows, int64_t m, T lr) {
    if (!stored()) {
      slope(rows, m, m);
      if (phase.anchor || phase.shift)
        for (int64_t i = 0; i < net.size; i++) w[i] -= lr * (decayed(i) + added(i));
      else if (phase.decay != 0)
        for (int64_t i = 0; i < net.size; i++) w[i] -= lr * decayed(i);
      net.accumulate(w, m, -lr);
      return;
    }
    gradient.clear(net.size);
    for (int64_t done = 0; done < m; done += BLOCK) {
      const int64_t part = m - done < BLOCK ? m - done : BLOCK;
      slope(rows + done, part, m);
      net.accumulate(gradient, part, 1);
    }
    if (phase.anchor || phase.shift)
      for (int64_t i = 0; i < net.size; i++) gradient[i] += added(i);
    if (!std::isinf(phase.clip)) clip();
    if (phase.decay != 0)
      for (int64_t i = 0; i < net.size; i++) gradient[i] += decayed(i);
    if (!phase.buffer) {
      for (int64_t i = 0; i < net.size; i++) w[i] -= lr * gradient[i];
      return;
    }
    const T rho = static_cast<T>(phase.momentum);
    for (int64_t i = 0; i < net.size; i++) {
      buffer[i] = gradient[i] + rho * buffer[i];
      w[i] -= lr * (phase.nesterov ? gradient[i] + rho * buffer[i] : buffer[i]);
    }
  }

  // what m of the `all` examples of a batch contribute to the derivatives of its mean loss, in d of all layers
  void slope(const int64_t* rows, int64_t m, int64_t all) {
    net.gather(rows, m);
    net.forward(w, m);
    net.residual(rows, m, static_cast<T>(1.0 / static_cast<double>(all)), nullptr, nullptr, nullptr);
    net.backward(w, m);
  }

  V decayed(int64_t i) const { return static_cast<T>(phase.decay) * w[i]; }

  V added(int64_t i) const { return static_cast<T>(phase.pull) * (w[i] - anchor[i]) + shift[i]; }

  void clip() {
    V sum{};
    for (int64_t i = 0; i < net.size; i++) sum += gradient[i] * gradient[i];
    const T length = std::sqrt(total<T>(sum)), most = static_cast<T>(phase.clip);
    if (length <= most) return;
    for (int64_t i = 0; i < net.size; i++) gradient[i] *= most / length;
  }
};

// sum over the clients of weight times value, column by column in float64
template <typename T>
void weighted_sum(int64_t clients, int64_t columns, const double* weight, const T* value, double* sum) {
  constexpr int64_t WIDTH = 1024;  // columns whose sums stay in the cache
  for (int64_t first = 0; first < columns; first += WIDTH) {
    const int64_t count = std::min(WIDTH, columns - first);
    double part[WIDTH] = {};
    for (int64_t c = 0; c < clients; c++) {
      const T* row = value + c * columns + first;
      for (int64_t i = 0; i < count; i++) part[i] += weight[c] * static_cast<double>(row[i]);
    }
    std::memcpy(sum + first, part, sizeof(double) * count);
  }
}

template <typename T> int descend(const Problem* problem, const Phase* phase) {
  try {
    Solver<T> solver(*problem, *phase);
    for (int64_t c = 0; c < phase->clients; c++) solver.client(c);
    return 0;
  } catch (const std::bad_alloc&) {
    return 1;
  }
}

template <typename T> int measure(const Problem* problem, const Measurement* asked) {
  try {
    Network<T> net(*problem);
    Room<typename Vector<T>::type> w, gradient;
    w.hold(net.size);
    if (asked->gradient) gradient.hold(net.size);
    if (!asked->own) net.pack(static_cast<const T*>(asked->w), w);
    for (int64_t c = 0; c < asked->clients; c++) {
      if (asked->own) net.pack(static_cast<const T*>(asked->w) + c * net.values, w);
      const int64_t* rows = asked->rows + asked->offset[c];
      const T* weight = asked->weight ? static_cast<const T*>(asked->weight) + asked->offset[c] : nullptr;
      int64_t n = asked->count[c];
      const T share = weight ? T(0) : static_cast<T>(1.0 / static_cast<double>(n));
      while (weight && n > 0 && weight[n - 1] == 0) n--;  // padding
      asked->loss[c] = 0;
      if (asked->hits) asked->hits[c] = 0;
      if (asked->gradient) gradient.clear(net.size);
      for (int64_t done = 0; done < n; done += BLOCK) {
        const int64_t m = n - done < BLOCK ? n - done : BLOCK;
        net.gather(rows + done, m);
        net.forward(w, m);
        double* hits = asked->hits ? asked->hits + c : nullptr;
        net.residual(rows + done, m, share, weight ? weight + done : nullptr, asked->loss + c, hits);
        if (!asked->gradient) continue;
        net.backward(w, m);
        net.accumulate(gradient, m, 1);
      }
      if (asked->gradient) net.unpack(gradient, static_cast<T*>(asked->gradient) + c * net.values);
    }
    return 0;
  } catch (const std::bad_alloc&) {
    return 1;
  }
}

}  // namespace

extern "C" {
int descend_float(const Problem* problem, const Phase* phase) { return descend<float>(problem, phase); }
int descend_double(const Problem* problem, const Phase* phase) { return descend<double>(problem, phase); }
void sum_float(int64_t clients, int64_t columns, const double* weight, const float* value, double* sum) {
  weighted_sum<float>(clients, columns, weight, value, sum);
}
void sum_double(int64_t clients, int64_t columns, const double* weight, const double* value, double* sum) {
  weighted_sum<double>(clients, columns, weight, value, sum);
}
int measure_float(const Problem* problem, const Measurement* asked) { return measure<float>(problem, asked); }
int measure_double(const Problem* problem, const Measurement* asked) { return measure<double>(problem, asked); }
}
