/* Ed25519 signatures of plans: verification alone (RFC 8032), with SHA-512. Arithmetic after TweetNaCl (Bernstein et
 * al., public domain): a field element is 16 limbs of 16 bits, with room for carries. Nothing here is secret, so time
 * may depend on the data. */
#include <errno.h>
#include <string.h>
#include <unistd.h>
#include "launcher.h"

/* Run once, if at all: small rather than fast. */
#pragma clang attribute push(__attribute__((minsize)), apply_to = function)

typedef int64_t field[16];

static const uint64_t round_constants[80] = {
    0x428a2f98d728ae22u, 0x7137449123ef65cdu, 0xb5c0fbcfec4d3b2fu, 0xe9b5dba58189dbbcu, 0x3956c25bf348b538u,
    0x59f111f1b605d019u, 0x923f82a4af194f9bu, 0xab1c5ed5da6d8118u, 0xd807aa98a3030242u, 0x12835b0145706fbeu,
    0x243185be4ee4b28cu, 0x550c7dc3d5ffb4e2u, 0x72be5d74f27b896fu, 0x80deb1fe3b1696b1u, 0x9bdc06a725c71235u,
    0xc19bf174cf692694u, 0xe49b69c19ef14ad2u, 0xefbe4786384f25e3u, 0x0fc19dc68b8cd5b5u, 0x240ca1cc77ac9c65u,
    0x2de92c6f592b0275u, 0x4a7484aa6ea6e483u, 0x5cb0a9dcbd41fbd4u, 0x76f988da831153b5u, 0x983e5152ee66dfabu,
    0xa831c66d2db43210u, 0xb00327c898fb213fu, 0xbf597fc7beef0ee4u, 0xc6e00bf33da88fc2u, 0xd5a79147930aa725u,
    0x06ca6351e003826fu, 0x142929670a0e6e70u, 0x27b70a8546d22ffcu, 0x2e1b21385c26c926u, 0x4d2c6dfc5ac42aedu,
    0x53380d139d95b3dfu, 0x650a73548baf63deu, 0x766a0abb3c77b2a8u, 0x81c2c92e47edaee6u, 0x92722c851482353bu,
    0xa2bfe8a14cf10364u, 0xa81a664bbc423001u, 0xc24b8b70d0f89791u, 0xc76c51a30654be30u, 0xd192e819d6ef5218u,
    0xd69906245565a910u, 0xf40e35855771202au, 0x106aa07032bbd1b8u, 0x19a4c116b8d2d0c8u, 0x1e376c085141ab53u,
    0x2748774cdf8eeb99u, 0x34b0bcb5e19b48a8u, 0x391c0cb3c5c95a63u, 0x4ed8aa4ae3418acbu, 0x5b9cca4f7763e373u,
    0x682e6ff3d6b2b8a3u, 0x748f82ee5defb2fcu, 0x78a5636f43172f60u, 0x84c87814a1f0ab72u, 0x8cc702081a6439ecu,
    0x90befffa23631e28u, 0xa4506cebde82bde9u, 0xbef9a3f7b2c67915u, 0xc67178f2e372532bu, 0xca273eceea26619cu,
    0xd186b8c721c0c207u, 0xeada7dd6cde0eb1eu, 0xf57d4f7fee6ed178u, 0x06f067aa72176fbau, 0x0a637dc5a2c898a6u,
    0x113f9804bef90daeu, 0x1b710b35131c471bu, 0x28db77f523047d84u, 0x32caab7b40c72493u, 0x3c9ebe0a15c9bebcu,
    0x431d67c49c100d4cu, 0x4cc5d4becb3e42b6u, 0x597f299cfc657e2au, 0x5fcb6fab3ad6faecu, 0x6c44198c4a475817u};
static const uint64_t initial[8] = {
    0x6a09e667f3bcc908u, 0xbb67ae8584caa73bu, 0x3c6ef372fe94f82bu, 0xa54ff53a5f1d36f1u,
    0x510e527fade682d1u, 0x9b05688c2b3e6c1fu, 0x1f83d9abfb41bd6bu, 0x5be0cd19137e2179u};
static const field edwards_d2 = {0xf159, 0x26b2, 0x9b94, 0xebd6, 0xb156, 0x8283, 0x149a, 0x00e0, 0xd130, 0xeef3, 0x80f2, 0x198e, 0xfce7, 0x56df, 0xd9dc, 0x2406};
static const field edwards_d = {0x78a3, 0x1359, 0x4dca, 0x75eb, 0xd8ab, 0x4141, 0x0a4d, 0x0070, 0xe898, 0x7779, 0x4079, 0x8cc7, 0xfe73, 0x2b6f, 0x6cee, 0x5203};
static const field base_x = {0xd51a, 0x8f25, 0x2d60, 0xc956, 0xa7b2, 0x9525, 0xc760, 0x692c, 0xdc5c, 0xfdd6, 0xe231, 0xc0a4, 0x53fe, 0xcd6e, 0x36d3, 0x2169};
static const field base_y = {0x6658, 0x6666, 0x6666, 0x6666, 0x6666, 0x6666, 0x6666, 0x6666, 0x6666, 0x6666, 0x6666, 0x6666, 0x6666, 0x6666, 0x6666, 0x6666};
static const field root_of_minus_one = {0xa0b0, 0x4a0e, 0x1b27, 0xc4ee, 0xe478, 0xad2f, 0x1806, 0x2f43, 0xd7a7, 0x3dfb, 0x0099, 0x2b4d, 0xdf0b, 0x4fc1, 0x2480, 0x2b83};
static const int64_t order[32] = {237, 211, 245, 92, 26, 99, 18, 88, 214, 156, 247, 162, 222, 249, 222, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16};

/* -- SHA-512 */

typedef struct {
  uint64_t state[8], bytes;
  uint8_t block[128];
} sha512;

static uint64_t rotated(uint64_t x, int n) { return (x >> n) | (x << (64 - n)); }

static void sha512_block(uint64_t h[8], const uint8_t *block) {
  uint64_t w[80], v[8];
  for (int i = 0; i < 16; i++) {
    w[i] = 0;
    for (int k = 0; k < 8; k++) w[i] = w[i] << 8 | block[8 * i + k];
  }
  for (int i = 16; i < 80; i++) {
    uint64_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + w[i - 7] + (rotated(a, 1) ^ rotated(a, 8) ^ a >> 7) + (rotated(b, 19) ^ rotated(b, 61) ^ b >> 6);
  }
  memcpy(v, h, sizeof v);
  for (int i = 0; i < 80; i++) {
    uint64_t e = v[4], a = v[0];
    uint64_t t = v[7] + (rotated(e, 14) ^ rotated(e, 18) ^ rotated(e, 41)) + ((e & v[5]) ^ (~e & v[6])) +
                 round_constants[i] + w[i];
    uint64_t u = (rotated(a, 28) ^ rotated(a, 34) ^ rotated(a, 39)) + ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
    for (int k = 7; k > 0; k--) v[k] = v[k - 1];
    v[4] += t;
    v[0] = t + u;
  }
  for (int i = 0; i < 8; i++) h[i] += v[i];
}

static void sha512_start(sha512 *s) {
  memcpy(s->state, initial, sizeof initial);
  s->bytes = 0;
}

static void sha512_add(sha512 *s, const uint8_t *data, size_t n) {
  for (size_t at = (size_t)(s->bytes % 128); n;) {
    size_t part = n < 128 - at ? n : 128 - at;
    memcpy(s->block + at, data, part);
    data += part;
    n -= part;
    s->bytes += part;
    at += part;
    if (at == 128) sha512_block(s->state, s->block), at = 0;
  }
}

static void sha512_end(sha512 *s, uint8_t out[64]) {
  uint64_t bits = s->bytes * 8;
  uint8_t tail[144] = {0x80};
  size_t pad = (size_t)((240 - 1 - s->bytes % 128) % 128);
  for (int i = 0; i < 8; i++) tail[1 + pad + (size_t)(8 + i)] = (uint8_t)(bits >> (56 - 8 * i));
  sha512_add(s, tail, 1 + pad + 16);
  for (int i = 0; i < 64; i++) out[i] = (uint8_t)(s->state[i / 8] >> (56 - i % 8 * 8));
}

/* -- the field of 2^255 - 19 */

static void carry(field o) {
  for (int i = 0; i < 16; i++) {
    o[i] += 1 << 16;
    int64_t c = o[i] >> 16;
    o[(i + 1) % 16] += i < 15 ? c - 1 : 38 * (c - 1);
    o[i] -= c * 65536;
  }
}
static void swap_if(field p, field q, int64_t b) {
  for (int i = 0; i < 16; i++) {
    int64_t t = -b & (p[i] ^ q[i]);
    p[i] ^= t;
    q[i] ^= t;
  }
}
static void plus(field o, const field a, const field b) {
  for (int i = 0; i < 16; i++) o[i] = a[i] + b[i];
}
static void minus(field o, const field a, const field b) {
  for (int i = 0; i < 16; i++) o[i] = a[i] - b[i];
}
static void times(field o, const field a, const field b) {
  int64_t t[31] = {0};
  for (int i = 0; i < 16; i++)
    for (int j = 0; j < 16; j++) t[i + j] += a[i] * b[j];
  for (int i = 0; i < 15; i++) t[i] += 38 * t[i + 16];
  memcpy(o, t, sizeof(field));
  carry(o);
  carry(o);
}
static void pack_field(uint8_t out[32], const field n) {
  field m, t;
  memcpy(t, n, sizeof t);
  for (int i = 0; i < 3; i++) carry(t);
  for (int k = 0; k < 2; k++) {
    m[0] = t[0] - 0xffed;
    for (int i = 1; i < 15; i++) {
      m[i] = t[i] - 0xffff - (m[i - 1] >> 16 & 1);
      m[i - 1] &= 0xffff;
    }
    m[15] = t[15] - 0x7fff - (m[14] >> 16 & 1);
    int64_t borrowed = m[15] >> 16 & 1;
    m[14] &= 0xffff;
    swap_if(t, m, 1 - borrowed);
  }
  for (int i = 0; i < 16; i++) {
    out[2 * i] = (uint8_t)(t[i] & 0xff);
    out[2 * i + 1] = (uint8_t)(t[i] >> 8);
  }
}
static int differ(const field a, const field b) {
  uint8_t c[32], d[32];
  pack_field(c, a);
  pack_field(d, b);
  return memcmp(c, d, 32) != 0;
}
static void unpack_field(field o, const uint8_t n[32]) {
  for (int i = 0; i < 16; i++) o[i] = n[2 * i] + ((int64_t)n[2 * i + 1] << 8);
  o[15] &= 0x7fff;
}
/* a to the power 2^n - 2^m - ... : bits `skipped` (two at most, -1 for none) of an exponent of ones from bit `top`. */
static void power(field o, const field a, int top, int skipped, int skipped_too) {
  field c;
  memcpy(c, a, sizeof c);
  for (int i = top; i >= 0; i--) {
    times(c, c, c);
    if (i != skipped && i != skipped_too) times(c, c, a);
  }
  memcpy(o, c, sizeof c);
}

/* -- points (X, Y, Z, T) of the curve */

static void add_points(field p[4], field q[4]) {
  field a, b, c, d, t, e, f, g, h;
  minus(a, p[1], p[0]);
  minus(t, q[1], q[0]);
  times(a, a, t);
  plus(b, p[0], p[1]);
  plus(t, q[0], q[1]);
  times(b, b, t);
  times(c, p[3], q[3]);
  times(c, c, edwards_d2);
  times(d, p[2], q[2]);
  plus(d, d, d);
  minus(e, b, a);
  minus(f, d, c);
  plus(g, d, c);
  plus(h, b, a);
  times(p[0], e, f);
  times(p[1], h, g);
  times(p[2], g, f);
  times(p[3], e, h);
}
static void multiply(field p[4], field q[4], const uint8_t s[32]) {
  memset(p, 0, 4 * sizeof(field));
  p[1][0] = p[2][0] = 1;
  for (int i = 255; i >= 0; i--) {
    int64_t b = s[i / 8] >> (i & 7) & 1;
    for (int k = 0; k < 4; k++) swap_if(p[k], q[k], b);
    add_points(q, p);
    add_points(p, p);
    for (int k = 0; k < 4; k++) swap_if(p[k], q[k], b);
  }
}
static void pack_point(uint8_t out[32], field p[4]) {
  field x, y, inverse;
  uint8_t bytes[32];
  power(inverse, p[2], 253, 2, 4);
  times(x, p[0], inverse);
  times(y, p[1], inverse);
  pack_field(out, y);
  pack_field(bytes, x);
  out[31] ^= (uint8_t)((bytes[0] & 1) << 7);
}
/* The point -A of an encoded A; -1 when there is none. */
static int unpack_negative(field r[4], const uint8_t p[32]) {
  static const field zero = {0}, one = {1};
  field t, check, num, den, den2, den4, den6;
  uint8_t bytes[32];
  memcpy(r[2], one, sizeof one);
  unpack_field(r[1], p);
  times(num, r[1], r[1]);
  times(den, num, edwards_d);
  minus(num, num, r[2]);
  plus(den, r[2], den);
  times(den2, den, den);
  times(den4, den2, den2);
  times(den6, den4, den2);
  times(t, den6, num);
  times(t, t, den);
  power(t, t, 250, 1, -1);
  times(t, t, num);
  times(t, t, den);
  times(t, t, den);
  times(r[0], t, den);
  times(check, r[0], r[0]);
  times(check, check, den);
  if (differ(check, num)) times(r[0], r[0], root_of_minus_one);
  times(check, r[0], r[0]);
  times(check, check, den);
  if (differ(check, num)) return -1;
  pack_field(bytes, r[0]);
  if ((bytes[0] & 1) == p[31] >> 7) minus(r[0], zero, r[0]);
  times(r[3], r[0], r[1]);
  return 0;
}

/* -- scalars modulo the order of the base point */

static void modulo_order(uint8_t r[32], int64_t x[64]) {
  int64_t c;
  for (int i = 63; i >= 32; i--) {
    int j;
    c = 0;
    for (j = i - 32; j < i - 12; j++) {
      x[j] += c - 16 * x[i] * order[j - (i - 32)];
      c = (x[j] + 128) >> 8;
      x[j] -= c * 256;
    }
    x[j] += c;
    x[i] = 0;
  }
  c = 0;
  for (int j = 0; j < 32; j++) {
    x[j] += c - (x[31] >> 4) * order[j];
    c = x[j] >> 8;
    x[j] &= 255;
  }
  for (int j = 0; j < 32; j++) x[j] -= c * order[j];
  for (int i = 0; i < 32; i++) {
    x[i + 1] += x[i] >> 8;
    r[i] = (uint8_t)(x[i] & 255);
  }
}
static int below_order(const uint8_t s[32]) {
  for (int i = 31; i >= 0; i--)
    if (s[i] != order[i]) return s[i] < order[i];
  return 0;
}

/* Whether `signature` [64] of `message` [n] is by the owner of `key` [32]. */
static int ed25519_verify(const uint8_t *signature, const uint8_t *key, const uint8_t *message, size_t n) {
  field a[4], p[4], base[4] = {{0}};
  uint8_t hash[64], reduced[32], found[32];
  int64_t wide[64];
  sha512 s;
  if (!below_order(signature + 32) || unpack_negative(a, key)) return 0;
  sha512_start(&s);
  sha512_add(&s, signature, 32);
  sha512_add(&s, key, 32);
  sha512_add(&s, message, n);
  sha512_end(&s, hash);
  for (int i = 0; i < 64; i++) wide[i] = hash[i];
  modulo_order(reduced, wide);
  multiply(p, a, reduced);
  memcpy(base[0], base_x, sizeof base_x);
  memcpy(base[1], base_y, sizeof base_y);
  base[2][0] = 1;
  times(base[3], base_x, base_y);
  multiply(a, base, signature + 32);
  add_points(p, a);
  pack_point(found, p);
  return memcmp(found, signature, 32) == 0;
}

/* -- plans */

/* Reads the file, not the mapping: see weights_intact. */
int plan_signed(int fd, uint64_t offset, uint64_t bytes, const pack_signature *block) {
  static const char words[16] = PACK_SIGNED_WORDS;
  static uint8_t piece[16384];
  uint8_t message[16 + 64];
  sha512 s;
  sha512_start(&s);
  for (uint64_t left = bytes; left;) {
    ssize_t n = pread(fd, piece, left < sizeof piece ? (size_t)left : sizeof piece, (off_t)offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail(EXIT_IO, "cannot read the plan: %s", n ? strerror(errno) : "the file has become shorter");
    sha512_add(&s, piece, (size_t)n);
    offset += (uint64_t)n;
    left -= (uint64_t)n;
  }
  memcpy(message, words, 16);
  sha512_end(&s, message + 16);
  return ed25519_verify(block->signature, block->key, message, sizeof message);
}

#pragma clang attribute pop
