#include "backends/cpu/kernels/normalization_loops.h"

#include "backends/cpu/kernels/lanes.h"

namespace lucid::cpu::LUCID_ISA {
namespace {

/// Elements that are worked on while they are in the first cache.
constexpr int64_t kBlock = 4096;
constexpr int64_t kBlockRows = 128;

LUCID_INLINE float square_root(float x) { return __builtin_sqrtf(x); }
LUCID_INLINE double square_root(double x) { return __builtin_sqrt(x); }

constexpr int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

template <class T>
void apply(TileFn tile, const T* x, T* y, int64_t count) {
  const void* input = x;
  tile(&input, y, count, nullptr);
}

/// Sum of a[i] * b[i].
template <class T>
LUCID_INLINE T dot(const T* a, const T* b, int64_t count) {
  return fold_terms<Sum, T>(
      count, [=](int64_t i) { return load(a + i) * load(b + i); },
      [=](int64_t i, int64_t n) {
        return load_first(a + i, n, T{0}) * load_first(b + i, n, T{0});
      });
}

/// Sum of (x[i] - mean)^2.
template <class T>
LUCID_INLINE T sum_of_squares(const T* x, int64_t count, T mean) {
  const Lanes<T> means = fill(mean);
  return fold_terms<Sum, T>(
      count,
      [=](int64_t i) {
        const Lanes<T> d = load(x + i) - means;
        return d * d;
      },
      [=](int64_t i, int64_t n) {
        const Lanes<T> d = load_first(x + i, n, mean) - means;
        return d * d;
      });
}

/// Sum of grad[i] * (x[i] - mean).
template <class T>
LUCID_INLINE T sum_of_products(const T* grad, const T* x, int64_t count, T mean) {
  const Lanes<T> means = fill(mean);
  return fold_terms<Sum, T>(
      count, [=](int64_t i) { return load(grad + i) * (load(x + i) - means); },
      [=](int64_t i, int64_t n) {
        return load_first(grad + i, n, T{0}) * (load_first(x + i, n, mean) - means);
      });
}

/// y - max of each row; rows form one contiguous block.
template <class T>
void subtract_maxima(const T* x, T* y, int64_t rows, int64_t length) {
  for (int64_t r = 0; r < rows; ++r, x += length, y += length) {
    const T top = fold_row<Maximum, T>(x, length);
    LUCID_LOOP
    for (int64_t i = 0; i < length; ++i) y[i] = x[i] - top;
  }
}

/// Sums of exp(y) of each row. Rows longer than a block are taken piece by piece, in order.
template <class T>
void sum_exponentials(const T* y, int64_t rows, int64_t length, TileFn exp, T* sums) {
  alignas(64) T buffer[kBlock];
  if (length <= kBlock) {
    apply(exp, y, buffer, rows * length);
    for (int64_t r = 0; r < rows; ++r) sums[r] = fold_row<Sum, T>(buffer + r * length, length);
    return;
  }
  for (int64_t r = 0; r < rows; ++r) {
    T sum = 0;
    for (int64_t i = 0; i < length; i += kBlock) {
      const int64_t count = smaller(kBlock, length - i);
      apply(exp, y + r * length + i, buffer, count);
      sum += fold_row<Sum, T>(buffer, count);
    }
    sums[r] = sum;
  }
}

constexpr int64_t block_rows(int64_t length) {
  const int64_t fitting = length < 1 ? kBlockRows : kBlock / length;
  return fitting < 1 ? 1 : smaller(fitting, kBlockRows);
}

template <class T>
void softmax_rows(const T* x, T* y, int64_t rows, int64_t length, bool log,
                  const MathTiles& tiles) {
  const int64_t step = block_rows(length);
  for (int64_t r = 0; r < rows; r += step) {
    const int64_t count = smaller(step, rows - r);
    T* block = y + r * length;
    subtract_maxima(x + r * length, block, count, length);
    if (log) {
      T sums[kBlockRows];
      sum_exponentials(block, count, length, tiles.exp, sums);
      apply(tiles.log, sums, sums, count);
      for (int64_t k = 0; k < count; ++k) {
        T* row = block + k * length;
        const T shift = sums[k];
        for (int64_t i = 0; i < length; ++i) row[i] -= shift;
      }
      continue;
    }
    apply(tiles.exp, block, block, count * length);
    for (int64_t k = 0; k < count; ++k) {
      T* row = block + k * length;
      const T scale = T{1} / fold_row<Sum, T>(row, length);
      for (int64_t i = 0; i < length; ++i) row[i] *= scale;
    }
  }
}

template <class T>
void softmax_columns(const T* x, T* y, int64_t length, int64_t stride, int64_t width, bool log,
                     const MathTiles& tiles) {
  T top[kSoftmaxWidth];
  T sums[kSoftmaxWidth];
  T buffer[kSoftmaxWidth];
  for (int64_t j = 0; j < width; ++j) {
    top[j] = Maximum::identity<T>();
    sums[j] = 0;
  }
  for (int64_t c = 0; c < length; ++c) {
    const T* row = x + c * stride;
    for (int64_t j = 0; j < width; ++j) top[j] = Maximum::combine(top[j], row[j]);
  }
  for (int64_t c = 0; c < length; ++c) {
    const T* row = x + c * stride;
    T* out = y + c * stride;
    LUCID_LOOP
    for (int64_t j = 0; j < width; ++j) out[j] = row[j] - top[j];
    T* exponentials = log ? buffer : out;
    apply(tiles.exp, out, exponentials, width);
    LUCID_LOOP
    for (int64_t j = 0; j < width; ++j) sums[j] += exponentials[j];
  }
  if (log) {
    apply(tiles.log, sums, sums, width);
  } else {
    for (int64_t j = 0; j < width; ++j) sums[j] = T{1} / sums[j];
  }
  for (int64_t c = 0; c < length; ++c) {
    T* out = y + c * stride;
    LUCID_LOOP
    for (int64_t j = 0; j < width; ++j) out[j] = log ? out[j] - sums[j] : out[j] * sums[j];
  }
}

template <class T>
void log_softmax_grad_row(const T* grad, const T* y, T* dx, int64_t length, TileFn exp) {
  const T sum = fold_row<Sum, T>(grad, length);
  T buffer[kBlock];
  for (int64_t i = 0; i < length; i += kBlock) {
    const int64_t count = smaller(kBlock, length - i);
    apply(exp, y + i, buffer, count);
    LUCID_LOOP
    for (int64_t j = 0; j < count; ++j) dx[i + j] = grad[i + j] - buffer[j] * sum;
  }
}

// softmax: dx = y (grad - sum(grad y)); log_softmax: dx = grad - exp(y) sum(grad).
template <class T>
void softmax_grad_rows(const T* grad, const T* y, T* dx, int64_t rows, int64_t length, bool log,
                       const MathTiles& tiles) {
  for (int64_t r = 0; r < rows; ++r, grad += length, y += length, dx += length) {
    if (log) {
      log_softmax_grad_row(grad, y, dx, length, tiles.exp);
      continue;
    }
    const T sum = dot(grad, y, length);
    LUCID_LOOP
    for (int64_t i = 0; i < length; ++i) dx[i] = y[i] * (grad[i] - sum);
  }
}

template <class T>
void softmax_grad_columns(const T* grad, const T* y, T* dx, int64_t length, int64_t stride,
                          int64_t width, bool log, const MathTiles& tiles) {
  T sums[kSoftmaxWidth] = {};
  T buffer[kSoftmaxWidth];
  for (int64_t c = 0; c < length; ++c) {
    const T* g = grad + c * stride;
    const T* p = y + c * stride;
    for (int64_t j = 0; j < width; ++j) sums[j] += log ? g[j] : g[j] * p[j];
  }
  for (int64_t c = 0; c < length; ++c) {
    const T* g = grad + c * stride;
    const T* p = y + c * stride;
    T* out = dx + c * stride;
    if (log) {
      apply(tiles.exp, p, buffer, width);
      LUCID_LOOP
      for (int64_t j = 0; j < width; ++j) out[j] = g[j] - buffer[j] * sums[j];
      continue;
    }
    LUCID_LOOP
    for (int64_t j = 0; j < width; ++j) out[j] = p[j] * (g[j] - sums[j]);
  }
}

/// y = (x - mean) * scale * weight + bias.
template <class T>
LUCID_INLINE void scale_row(const T* x, const T* weight, const T* bias, T mean, T scale,
                            int64_t count, T* y) {
  if (weight == nullptr && bias == nullptr) {
    LUCID_LOOP
    for (int64_t i = 0; i < count; ++i) y[i] = (x[i] - mean) * scale;
    return;
  }
  if (bias == nullptr) {
    LUCID_LOOP
    for (int64_t i = 0; i < count; ++i) y[i] = (x[i] - mean) * scale * weight[i];
    return;
  }
  if (weight == nullptr) {
    LUCID_LOOP
    for (int64_t i = 0; i < count; ++i) y[i] = (x[i] - mean) * scale + bias[i];
    return;
  }
  LUCID_LOOP
  for (int64_t i = 0; i < count; ++i) y[i] = (x[i] - mean) * scale * weight[i] + bias[i];
}

template <class T>
void layer_norm(const T* x, const T* weight, const T* bias, T eps, int64_t rows, int64_t length,
                T* y, T* mean, T* rstd) {
  const T count = static_cast<T>(length);
  for (int64_t r = 0; r < rows; ++r, x += length, y += length) {
    const T m = fold_row<Sum, T>(x, length) / count;
    const T variance = sum_of_squares(x, length, m) / count;
    const T scale = T{1} / square_root(variance + eps);
    mean[r] = m;
    rstd[r] = scale;
    scale_row(x, weight, bias, m, scale, length, y);
  }
}

/// Sums of grad * weight and of grad * weight * (x - mean); weight may be null.
template <class T>
LUCID_INLINE void weighted_sums(const T* grad, const T* x, const T* weight, T mean, int64_t length,
                                T& sum, T& product) {
  if (weight == nullptr) {
    sum = fold_row<Sum, T>(grad, length);
    product = sum_of_products(grad, x, length, mean);
    return;
  }
  const Lanes<T> means = fill(mean);
  sum = dot(grad, weight, length);
  product = fold_terms<Sum, T>(
      length, [=](int64_t i) { return load(grad + i) * load(weight + i) * (load(x + i) - means); },
      [=](int64_t i, int64_t n) {
        return load_first(grad + i, n, T{0}) * load_first(weight + i, n, T{0}) *
               (load_first(x + i, n, mean) - means);
      });
}

// With xhat = (x - mean) rstd and g = grad weight:
// dx = rstd (g - mean(g) - xhat mean(g xhat)), dweight = sum grad xhat, dbias = sum grad.
template <class T>
void layer_norm_grad(const T* grad, const T* x, const T* mean, const T* rstd, const T* weight,
                     int64_t rows, int64_t length, T* dx, T* __restrict dweight,
                     T* __restrict dbias) {
  for (int64_t i = 0; i < length; ++i) dweight[i] = dbias[i] = 0;
  const T count = static_cast<T>(length);
  for (int64_t r = 0; r < rows; ++r, grad += length, x += length, dx += length) {
    const T m = mean[r];
    const T scale = rstd[r];
    T sum;
    T product;
    weighted_sums(grad, x, weight, m, length, sum, product);
    const T offset = sum / count;
    const T slope = product * scale / count;
    if (weight == nullptr) {
      LUCID_LOOP
      for (int64_t i = 0; i < length; ++i) {
        const T g = grad[i];
        const T xhat = (x[i] - m) * scale;
        dweight[i] += g * xhat;
        dbias[i] += g;
        dx[i] = scale * (g - offset - xhat * slope);
      }
      continue;
    }
    LUCID_LOOP
    for (int64_t i = 0; i < length; ++i) {
      const T g = grad[i];
      const T xhat = (x[i] - m) * scale;
      dweight[i] += g * xhat;
      dbias[i] += g;
      dx[i] = scale * (g * weight[i] - offset - xhat * slope);
    }
  }
}

/// Statistics of channels c..c+width where each image holds one element a channel.
template <class T>
void column_moments(const ChannelView& view, const T* x, int64_t width, T* mean, T* variance) {
  const T count = static_cast<T>(view.batch);
  for (int64_t j = 0; j < width; ++j) mean[j] = variance[j] = 0;
  for (int64_t n = 0; n < view.batch; ++n) {
    const T* row = x + n * view.channels;
    LUCID_LOOP
    for (int64_t j = 0; j < width; ++j) mean[j] += row[j];
  }
  for (int64_t j = 0; j < width; ++j) mean[j] /= count;
  for (int64_t n = 0; n < view.batch; ++n) {
    const T* row = x + n * view.channels;
    LUCID_LOOP
    for (int64_t j = 0; j < width; ++j) {
      const T d = row[j] - mean[j];
      variance[j] += d * d;
    }
  }
  for (int64_t j = 0; j < width; ++j) variance[j] /= count;
}

/// Images whose sums are made at once; they are added in order.
constexpr int kImages = 4;

/// Sums of a channel over the elements of `N` images, one after the other from x.
template <int N, class T>
LUCID_INLINE void image_sums(const ChannelView& view, const T* x, T (&sums)[N]) {
  const int64_t image = view.image();
  fold_terms_of_rows<Sum>(
      view.spatial, [=](int r, int64_t i) { return load(x + r * image + i); },
      [=](int r, int64_t i, int64_t n) {
        return load_first(x + r * image + i, n, Sum::identity<T>());
      },
      sums);
}

/// The same of (x - mean)^2.
template <int N, class T>
LUCID_INLINE void image_squares(const ChannelView& view, const T* x, T mean, T (&sums)[N]) {
  const int64_t image = view.image();
  const Lanes<T> means = fill(mean);
  fold_terms_of_rows<Sum>(
      view.spatial,
      [=](int r, int64_t i) {
        const Lanes<T> d = load(x + r * image + i) - means;
        return d * d;
      },
      [=](int r, int64_t i, int64_t n) {
        const Lanes<T> d = load_first(x + r * image + i, n, mean) - means;
        return d * d;
      },
      sums);
}

/// The same of grad, at even places, and of grad (x - mean), at odd ones.
template <int N, class T>
LUCID_INLINE void image_products(const ChannelView& view, const T* grad, const T* x, T mean,
                                 T (&sums)[2 * N]) {
  const int64_t image = view.image();
  const Lanes<T> means = fill(mean);
  fold_terms_of_rows<Sum>(
      view.spatial,
      [=](int r, int64_t i) {
        const int64_t at = r / 2 * image + i;
        const Lanes<T> g = load(grad + at);
        return r % 2 == 0 ? g : g * (load(x + at) - means);
      },
      [=](int r, int64_t i, int64_t n) {
        const int64_t at = r / 2 * image + i;
        if (r % 2 == 0) return load_first(grad + at, n, Sum::identity<T>());
        return load_first(grad + at, n, T{0}) * (load_first(x + at, n, mean) - means);
      },
      sums);
}

/// Adds what `sums(first image, results of some images)` gives for every image, in order.
template <class T, class Sums>
LUCID_INLINE T add_images(int64_t batch, Sums sums) {
  T total = 0;
  int64_t n = 0;
  for (; n + kImages <= batch; n += kImages) {
    T some[kImages];
    sums(n, some);
    for (const T each : some) total += each;
  }
  for (; n < batch; ++n) {
    T one[1];
    sums(n, one);
    total += one[0];
  }
  return total;
}

/// Statistics of one channel: image after image, in order.
template <class T>
void plane_moments(const ChannelView& view, const T* x, T* mean, T* variance) {
  const T count = static_cast<T>(view.per_channel());
  const T m =
      add_images<T>(view.batch,
                    [&](int64_t n, auto& sums) { image_sums(view, x + n * view.image(), sums); }) /
      count;
  const T squares = add_images<T>(view.batch, [&](int64_t n, auto& sums) {
    image_squares(view, x + n * view.image(), m, sums);
  });
  *mean = m;
  *variance = squares / count;
}

template <class T>
void batch_norm(const ChannelView& view, int64_t c, int64_t width, const T* x, const T* weight,
                const T* bias, T eps, T* y, T* mean, T* variance, T* rstd) {
  const bool is_column = view.spatial == 1;
  x += c * view.spatial;
  y += c * view.spatial;
  if (is_column) {
    column_moments(view, x, width, mean + c, variance + c);
  } else {
    plane_moments(view, x, mean + c, variance + c);
  }
  T scale[kChannelBlock];
  T shift[kChannelBlock];
  for (int64_t j = 0; j < width; ++j) {
    rstd[c + j] = T{1} / square_root(variance[c + j] + eps);
    scale[j] = weight == nullptr ? rstd[c + j] : rstd[c + j] * weight[c + j];
    shift[j] = bias == nullptr ? T{0} : bias[c + j];
  }
  for (int64_t n = 0; n < view.batch; ++n) {
    const T* row = x + n * view.image();
    T* out = y + n * view.image();
    if (is_column) {
      LUCID_LOOP
      for (int64_t j = 0; j < width; ++j) out[j] = (row[j] - mean[c + j]) * scale[j] + shift[j];
      continue;
    }
    const T m = mean[c];
    const T a = scale[0];
    const T b = shift[0];
    LUCID_LOOP
    for (int64_t i = 0; i < view.spatial; ++i) out[i] = (row[i] - m) * a + b;
  }
}

/// Adds a channel's sums of grad, and of grad (x - mean), over images [n, n + N).
template <int N, class T>
LUCID_INLINE void add_products(const ChannelView& view, int64_t n, const T* grad, const T* x,
                               T mean, T& dweight, T& dbias) {
  T sums[2 * N];
  image_products<N>(view, grad + n * view.image(), x + n * view.image(), mean, sums);
  for (int r = 0; r < N; ++r) {
    dbias += sums[2 * r];
    dweight += sums[2 * r + 1];
  }
}

/// dbias = sum of grad, dweight = sum of grad xhat.
template <class T>
void channel_sums(const ChannelView& view, int64_t width, const T* grad, const T* x, const T* mean,
                  const T* rstd, T* __restrict dweight, T* __restrict dbias) {
  for (int64_t j = 0; j < width; ++j) dweight[j] = dbias[j] = 0;
  if (view.spatial > 1) {
    constexpr int kPair = kImages / 2;
    int64_t n = 0;
    for (; n + kPair <= view.batch; n += kPair) {
      add_products<kPair>(view, n, grad, x, mean[0], dweight[0], dbias[0]);
    }
    for (; n < view.batch; ++n) add_products<1>(view, n, grad, x, mean[0], dweight[0], dbias[0]);
  }
  for (int64_t n = 0; view.spatial == 1 && n < view.batch; ++n) {
    const T* g = grad + n * view.image();
    const T* row = x + n * view.image();
    LUCID_LOOP
    for (int64_t j = 0; j < width; ++j) {
      dbias[j] += g[j];
      dweight[j] += g[j] * (row[j] - mean[j]);
    }
  }
  for (int64_t j = 0; j < width; ++j) dweight[j] *= rstd[j];
}

// With M elements a channel: dx = weight rstd (grad - dbias / M - xhat dweight / M).
template <class T>
void batch_norm_grad(const ChannelView& view, int64_t c, int64_t width, const T* grad, const T* x,
                     const T* mean, const T* rstd, const T* weight, T* dx, T* dweight, T* dbias) {
  grad += c * view.spatial;
  x += c * view.spatial;
  dx += c * view.spatial;
  mean += c;
  rstd += c;
  channel_sums(view, width, grad, x, mean, rstd, dweight + c, dbias + c);
  const T count = static_cast<T>(view.per_channel());
  T scale[kChannelBlock];
  T offset[kChannelBlock];
  T slope[kChannelBlock];
  for (int64_t j = 0; j < width; ++j) {
    scale[j] = weight == nullptr ? rstd[j] : rstd[j] * weight[c + j];
    offset[j] = dbias[c + j] / count;
    slope[j] = dweight[c + j] * rstd[j] / count;
  }
  for (int64_t n = 0; n < view.batch; ++n) {
    const T* g = grad + n * view.image();
    const T* row = x + n * view.image();
    T* out = dx + n * view.image();
    if (view.spatial == 1) {
      LUCID_LOOP
      for (int64_t j = 0; j < width; ++j) {
        out[j] = scale[j] * (g[j] - offset[j] - (row[j] - mean[j]) * slope[j]);
      }
      continue;
    }
    const T m = mean[0];
    const T a = scale[0];
    const T b = offset[0];
    const T s = slope[0];
    LUCID_LOOP
    for (int64_t i = 0; i < view.spatial; ++i) out[i] = a * (g[i] - b - (row[i] - m) * s);
  }
}

template <class T>
constexpr NormalizationLoops<T> kLoops = {
    .softmax_rows = softmax_rows<T>,
    .softmax_columns = softmax_columns<T>,
    .softmax_grad_rows = softmax_grad_rows<T>,
    .softmax_grad_columns = softmax_grad_columns<T>,
    .layer_norm = layer_norm<T>,
    .layer_norm_grad = layer_norm_grad<T>,
    .batch_norm = batch_norm<T>,
    .batch_norm_grad = batch_norm_grad<T>,
};

}  // namespace

void get_loops(NormalizationLoops<float>& loops) { loops = kLoops<float>; }
void get_loops(NormalizationLoops<double>& loops) { loops = kLoops<double>; }

}  // namespace lucid::cpu::LUCID_ISA
