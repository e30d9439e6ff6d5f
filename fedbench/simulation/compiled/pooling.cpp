// 2x2 max pooling followed by ReLU on images whose channels are next to each other, forward and backward.
//
// One pass each: the forward pass notes which of the four values a result comes from, or that it is 0; the backward
// pass writes every derivative once, zeros included, and adds up those of each channel, which is the gradient of the
// bias of a convolution before the pooling.

#include <cstdint>
#include <cstring>

namespace {

constexpr int BYTES = 64;
constexpr uint8_t NONE = 4;

template <typename T> struct Vector { typedef T type __attribute__((vector_size(BYTES), may_alias)); };
template <typename T> struct Integers;
template <> struct Integers<float> { typedef int32_t type __attribute__((vector_size(BYTES), may_alias)); };
template <> struct Integers<double> { typedef int64_t type __attribute__((vector_size(BYTES), may_alias)); };

// what a caller passes; compiled/layers.py has the same structure
struct Pooling {
  int64_t images, height, width, channels;  // of x; a last odd row or column is left out
  const void* x;                            // [images, height, width, channels]
  void* y;                                  // [images, height / 2, width / 2, channels]
  uint8_t* choice;                          // of the same shape: which of the four values, or NONE
  const void* d_y;                          // derivative of the loss by y
  void* d_x;                                // derivative by x
  void* sums;                               // [channels] of d_x over images and pixels
  void* part;                               // [channels] working memory
};

template <typename T> struct Pool {
  using V = typename Vector<T>::type;
  using I = typename Integers<T>::type;
  static constexpr int64_t L = BYTES / sizeof(T);
  typedef uint8_t Bytes __attribute__((vector_size(L), may_alias));

  const Pooling& at;

  // calls f(offset of the first of the four values, offset of the result, channel, values in the vector)
  template <typename F> void image(int64_t number, F f) const {
    const int64_t high = at.height / 2, wide = at.width / 2, row = at.width * at.channels;
    for (int64_t i = 0; i < high; i++)
      for (int64_t j = 0; j < wide; j++)
        for (int64_t c = 0; c < at.channels; c += L) {
          const int64_t from = (number * at.height + 2 * i) * row + 2 * j * at.channels + c;
          const int64_t to = ((number * high + i) * wide + j) * at.channels + c;
          if (at.channels - c >= L) f(from, to, c, L);
          else f(from, to, c, at.channels - c);
        }
  }

  template <typename W, typename E> static W load(const E* from, int64_t count) {
    W v{};
    if (count == L) std::memcpy(&v, from, sizeof(v));
    else std::memcpy(&v, from, sizeof(E) * count);
    return v;
  }

  template <typename W, typename E> static void store(E* to, W v, int64_t count) {
    if (count == L) std::memcpy(to, &v, sizeof(v));
    else std::memcpy(to, &v, sizeof(E) * count);
  }

  void forward() const {
    const T* x = static_cast<const T*>(at.x);
    T* y = static_cast<T*>(at.y);
    const int64_t row = at.width * at.channels;
    for (int64_t number = 0; number < at.images; number++)
      image(number, [&](int64_t from, int64_t to, int64_t, int64_t count) {
        V top = load<V>(x + from, count);
        I which{};
        for (int k = 1; k < 4; k++) {
          const V v = load<V>(x + from + k % 2 * at.channels + k / 2 * row, count);
          const I better = (v > top) | (v != v);  // the first of equal values, and a NaN before all
          top = better ? v : top;
          which = better ? I{} + k : which;
        }
        const I none = top <= V{};
        top = none ? V{} : top;
        which = none ? I{} + NONE : which;
        store(y + to, top, count);
        if (at.choice) store(at.choice + to, __builtin_convertvector(which, Bytes), count);
      });
  }

  void backward() const {
    const T* d_y = static_cast<const T*>(at.d_y);
    T *d_x = static_cast<T*>(at.d_x), *sums = static_cast<T*>(at.sums), *part = static_cast<T*>(at.part);
    const int64_t row = at.width * at.channels;
    std::memset(sums, 0, sizeof(T) * at.channels);
    for (int64_t number = 0; number < at.images; number++) {
      std::memset(part, 0, sizeof(T) * at.channels);
      image(number, [&](int64_t from, int64_t to, int64_t c, int64_t count) {
        const V d = load<V>(d_y + to, count);
        const I which = __builtin_convertvector(load<Bytes>(at.choice + to, count), I);
        for (int k = 0; k < 4; k++)
          store(d_x + from + k % 2 * at.channels + k / 2 * row, which == k ? d : V{}, count);
        store(part + c, load<V>(part + c, count) + (which == NONE ? V{} : d), count);
      });
      clear_border(d_x + number * at.height * row);
      for (int64_t c = 0; c < at.channels; c++) sums[c] += part[c];
    }
  }

  // zeros in a last odd row or column, which no result comes from
  void clear_border(T* image) const {
    const int64_t row = at.width * at.channels;
    if (at.height % 2) std::memset(image + (at.height - 1) * row, 0, sizeof(T) * row);
    if (at.width % 2)
      for (int64_t i = 1; i <= at.height; i++) std::memset(image + i * row - at.channels, 0, sizeof(T) * at.channels);
  }
};

}  // namespace

extern "C" {
void pool_float(const Pooling* pooling) { Pool<float>{*pooling}.forward(); }
void pool_double(const Pooling* pooling) { Pool<double>{*pooling}.forward(); }
void pool_back_float(const Pooling* pooling) { Pool<float>{*pooling}.backward(); }
void pool_back_double(const Pooling* pooling) { Pool<double>{*pooling}.backward(); }
}
