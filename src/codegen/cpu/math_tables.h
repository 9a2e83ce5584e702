// codegen/cpu/math_tables.h
// Coefficients of math.cpp's polynomials, lowest power first: least-squares fits on Chebyshev nodes in
// 90-digit arithmetic, each coefficient rounded to the working precision before the next are fitted. The
// error behind each name is the largest relative one of the function that it serves. Floats are written as
// floats (exact in double).
#pragma once

namespace bolt::codegen::cpu {

// (e^r - 1 - r) / r^2, |r| <= ln2/2 (2^-28.1)
constexpr double kExp32[] = {0.5f, 0.166665152f, 0.0416664556f, 0.00836924277f, 0.00139357755f};
// (2^f - 1) / f, |f| <= 1/2 (2^-28.3)
constexpr double kExp2In32[] = {0.693147182f,   0.240226477f,   0.0555035993f,
                                0.00961850584f, 0.00133908063f, 0.000153264627f};
// (e^r - 1 - r) / r^2, |r| <= ln2/2 (2^-63.8)
constexpr double kExp64[] = {0x1.0000000000000p-1,  0x1.555555555555cp-3,  0x1.5555555555558p-5,
                             0x1.111111110e9dep-7,  0x1.6c16c16c15000p-10, 0x1.a01a01b455d91p-13,
                             0x1.a01a01ad7d6b0p-16, 0x1.71ddee3ecd7a3p-19, 0x1.27e4cc1405417p-22,
                             0x1.af6ee586ebd03p-26, 0x1.1f8bd99d1b7c7p-29};
// (log(1+f) - f + f^2/2) / f^3, 1+f in [sqrt(1/2), sqrt(2)] (2^-30.2)
constexpr double kLog32[] = {0.333333105f,  -0.25f,       0.200022265f,  -0.166685268f, 0.142181218f,
                             -0.123964213f, 0.118885927f, -0.117258288f, 0.0680491775f};
// (log((1+s)/(1-s)) - 2s) / s^3 in s^2, |s| <= 0.1716 (2^-58.4)
constexpr double kLog64[] = {0x1.5555555555594p-1, 0x1.999999997f704p-2, 0x1.2492494240384p-2,
                             0x1.c71c51d110e79p-3, 0x1.7466495bb3f12p-3, 0x1.39a0c13b0a576p-3,
                             0x1.2f0e9f9a4661ep-3};
// (sin(x)/x - 1) / x^2 in x^2, |x| <= pi/4 (2^-32.3)
constexpr double kSin32[] = {-0.166666672f, 0.00833337288f, -0.000198502996f, 2.80444374e-06f};
// the same (2^-57.9)
constexpr double kSin64[] = {-0x1.5555555555548p-3, 0x1.111111110f775p-7,   -0x1.a01a019bf64f9p-13,
                             0x1.71de3563061f1p-19, -0x1.ae5e57a5da082p-26, 0x1.5d8f1f34d7826p-33};
// (cos(x) - 1 + x^2/2) / x^4 in x^2, |x| <= pi/4 (2^-33.1)
constexpr double kCos32[] = {0.0416666456f, -0.0013887313f, 2.44329585e-05f};
// the same (2^-64.1)
constexpr double kCos64[] = {0x1.555555555554bp-5,   -0x1.6c16c16c15046p-10, 0x1.a01a019c9697fp-16,
                             -0x1.27e4f7f80e86ap-22, 0x1.1ee9e0a72e614p-29,  -0x1.8fa9264a4b273p-37};
// (tanh(x)/x - 1) / x^2 in x^2, |x| <= 0.63 (2^-32.3)
constexpr double kTanh32[] = {-0.333333313f, 0.133332193f,    -0.0539478473f,
                              0.0217044558f, -0.00818272308f, 0.00214503752f};
// erf(x)/x - 1 in x^2, |x| <= 0.93 (2^-29.9)
constexpr double kErf32[] = {0.128379166f,  -0.376126319f,    0.112836771f,   -0.0268585924f,
                             0.0051993141f, -0.000812513521f, 8.30120262e-05f};
// the same (2^-56.2)
constexpr double kErf64[] = {0x1.06eba8214db69p-3,   -0x1.812746b037a02p-2,  0x1.ce2f21a043b14p-4,
                             -0x1.b82ce312c75e7p-6,  0x1.565bcd176f562p-8,   -0x1.c02db59a256f6p-11,
                             0x1.f9a3565e26173p-14,  -0x1.f4d6070ac6594p-17, 0x1.ba17a6af463e1p-20,
                             -0x1.6121bee3a2aedp-23, 0x1.07922bd2c823ep-26,  -0x1.878cf88593188p-30,
                             0x1.efdbbcfe195d2p-34};
// -log(1 - erf(x)), 0.92 <= x <= 3.95; error weighted by erfc (2^-34.6)
constexpr double kErfLog32[] = {-0.000169117717f, 1.12948203f,     0.633430421f,
                                0.108161271f,     -0.0250158962f,  0.0041145361f,
                                -0.000415590912f, 1.75750483e-05f, 2.80700817e-07f};
// (1 + log2(ndtr(-a))) / a, 0 <= a <= 6; of all below 1/2 the error is at most 2^-27
constexpr double kNdtr32[] = {-1.15110517f,     -0.459208518f,    -0.0524952449f,  0.00706210732f,
                              -0.000135944589f, -0.000186590376f, 3.94648341e-05f, -2.8423342e-06f};
// (atan(x)/x - 1) / x^2 in x^2, |x| <= tan(pi/8) (2^-59.3)
constexpr double kAtan64[] = {-0x1.555555555553bp-2, 0x1.99999999954efp-3,  -0x1.249249229b275p-3,
                              0x1.c71c70dfe3896p-4,  -0x1.745cf83e7578ap-4, 0x1.3b110f2b05cefp-4,
                              -0x1.10eb5099556dfp-4, 0x1.df09d5c852456p-5,  -0x1.9cbbc8b257b15p-5,
                              0x1.379ee1b536738p-5,  -0x1.24f92721b932ep-6};
// (asin(x)/x - 1) / x^2 in x^2, |x| <= 1/2 (2^-59.7)
constexpr double kAsin64[] = {0x1.5555555555577p-3, 0x1.333333332e1b5p-4, 0x1.6db6db7209136p-5,
                              0x1.f1c71a992177dp-6, 0x1.6e8bde5eef66dp-6, 0x1.1c49f9e9a13dep-6,
                              0x1.ca1ea227054eep-7, 0x1.758d268ee4417p-7, 0x1.6111c74a88316p-7,
                              0x1.e878ce55107adp-9, 0x1.62daa950786bap-6, -0x1.56eedd53cbf7dp-6,
                              0x1.0af379e651188p-5};
// (sinh(x)/x - 1) / x^2 in x^2, |x| <= 1 (2^-62.5)
constexpr double kSinh64[] = {0x1.5555555555555p-3,  0x1.111111111117cp-7,  0x1.a01a01a00dbc1p-13,
                              0x1.71de3a6097d87p-19, 0x1.ae644b504704ap-26, 0x1.612aa79b667d3p-33,
                              0x1.aaca9e555cf3ep-41, 0x1.3e1e4b3ec1be7p-48};
// (1 + 2a) e^(a^2) erfc(a) in q = (a-4)/(a+4), 0 <= a <= 28 (2^-53.9)
constexpr double kErfc64[] = {
    0x1.3ba5916e9fd7fp+0,   -0x1.1df1ad154a28fp-3,  0x1.f7f5df66fd6a7p-7,   0x1.16ecefcfa540ep-4,
    -0x1.9ddb23c3e8874p-4,  0x1.7fee004e112c3p-4,   -0x1.0fb06dfe56142p-4,  0x1.3079edf6aa5a8p-5,
    -0x1.096238828c1cbp-6,  0x1.49c6727af5d87p-8,   -0x1.8d4a9c3d62797p-11, -0x1.a1df1e2a70512p-13,
    0x1.3be068698b9ccp-13,  -0x1.9959f4cc5a01cp-16, -0x1.788ca4d342b82p-17, 0x1.7f2d5af276b00p-18,
    0x1.3b713b970cad2p-22,  -0x1.bb2bbabb02ec5p-21, 0x1.40eafd5947706p-24,  0x1.d8b4353ca5555p-24,
    -0x1.353a87be1712dp-26, -0x1.e432644b5660ap-27, 0x1.00cd8e2f991c3p-29,  0x1.5b62d008c2d94p-30};
// (1 + 2a) e^(a^2) erfc(a) in q = (a-1.5)/(a+1.5), 0 <= a <= 10.3 (2^-27.9)
constexpr double kErfc32[] = {1.28634167f,   -0.0339625515f, -0.237737447f,    0.114107259f,
                              0.0210161619f, -0.0180454664f, -0.00737195183f,  0.00190128013f,
                              0.0023345605f, 0.00035306561f, -0.000392375136f, -0.000162974844f};
// erfinv(x)/x in w - 1, w = -log(1 - x^2) <= 6.25 (2^-26)
constexpr double kErfinvNear32[] = {1.12737441f,     0.247832879f,     0.00425064703f,   -0.00237643369f,
                                    0.000100150937f, 3.83270744e-05f,  -4.33109062e-06f, -6.2960288e-07f,
                                    1.86806588e-07f, -1.71464887e-08f, 5.82262627e-10f};
// the same in s - 3.25, s = sqrt(w), 2.5 <= s <= 4 (2^-25.6)
constexpr double kErfinvFar32[] = {3.08388567f,     1.00525904f,      0.0053695729f,
                                   -0.00374962064f, 0.00249479082f,   -0.00171239127f,
                                   0.000966621214f, -0.000276366685f, -2.89011932e-05f};
// erfinv(x)/x in w = -log(1 - x^2), w <= 2 (2^-63.9)
constexpr double kErfinvNear64[] = {0x1.c5bf891b4ef6bp-1,   0x1.db29fb2fee5e4p-3,   0x1.7a72e72c1ed4fp-7,
                                    -0x1.3211025df9e41p-9,  -0x1.0c86b85d02281p-13, 0x1.87014e5c370fdp-15,
                                    0x1.0f1e4af976dfcp-19,  -0x1.0fce4483bdf40p-20, -0x1.40570517893e5p-25,
                                    0x1.877ecd5bc3905p-26,  0x1.a2fbc89272666p-31,  -0x1.249566c5568a9p-31,
                                    -0x1.63c5fc2809a23p-37, 0x1.325f46c09a365p-37,  0x1.0cb94dbbabce6p-39,
                                    -0x1.b596d3fa28467p-41, 0x1.a542f2acc737fp-44,  -0x1.2c9ce81d700b0p-48};
// the same in w - 4, 2 <= w <= 6.25 (2^-58.9)
constexpr double kErfinvMiddle64[] = {0x1.dbd8f2aa5c9c3p+0,   0x1.d3ab9f0b4f5c4p-3,  -0x1.d93d4855e9d2fp-8,
                                      -0x1.abc2a49f86b8fp-13, 0x1.f29c0ddb922d4p-14, -0x1.044d06225b776p-16,
                                      0x1.0535e24753e44p-21,  0x1.7ca0c4b9f8a03p-23, -0x1.1f378c6bc421bp-25,
                                      0x1.fc89cb49d3267p-30,  0x1.3ff3918dc1b3bp-32, -0x1.3b9e2eead2df1p-34,
                                      0x1.70e3bb5229c92p-38,  0x1.063480a7ea2dfp-41, -0x1.5aaa9424d66dfp-43,
                                      0x1.f25f888f82b10p-47,  0x1.91e518e577318p-51, -0x1.87f4463b360b1p-52,
                                      0x1.2187395ece11ap-55,  0x1.3647282bb4beap-59, -0x1.2a1f0e86a04cdp-61};
// the same in s - 3.25, s = sqrt(w), 2.49 <= s <= 4 (2^-51)
constexpr double kErfinvFar64[] = {0x1.8abcc380d5a48p+1,  0x1.0158a6d641d33p+0,   0x1.5ffcfe5b6bc8dp-8,
                                   -0x1.ebadabb849468p-9, 0x1.468eeca913dfep-9,   -0x1.ba9241422c0a6p-10,
                                   0x1.f3cc549dddd24p-11, -0x1.7448a5c570fcap-12, 0x1.932dfea4dd777p-16,
                                   0x1.1e6805110c456p-14, -0x1.8cf1fb1615343p-15, 0x1.a2a2103e45a59p-17,
                                   0x1.88e4e33138fdep-19, -0x1.0d7e1713ddcabp-18, 0x1.91a711d5f4e27p-20,
                                   0x1.5be7864baeb78p-26, -0x1.212b573757134p-22, 0x1.82039984512c6p-24};
// the same in s - 5, 4 <= s <= 6.1 (2^-53)
constexpr double kErfinvFarthest64[] = {
    0x1.3664ddd1ad7fbp+2,   0x1.02a30d1fba0fdp+0,   -0x1.22ea5df0998d0p-13, -0x1.c2f36a9c1f3b0p-13,
    0x1.3ebf4ebf42987p-14,  -0x1.4a34927b8b7aep-16, 0x1.2fbd21de7ab11p-18,  -0x1.0a8f60cbc6e41p-20,
    0x1.ebcccfd39a5aap-23,  -0x1.22607847b5930p-24, 0x1.f47947bfa3becp-26,  -0x1.04623b269dd19p-26,
    0x1.065ffc8e6056bp-27,  -0x1.eb9e1c02b695ep-29, 0x1.9ad2e52c51de4p-30,  -0x1.9f3f5afd2cd73p-32,
    -0x1.a1164f317bdb8p-36, 0x1.fc7320697cfbfp-36};
// Lanczos' approximation of the gamma function for g = 6.02468..., without its exponential: the quotient of
// two polynomials of degree 12 in 1/x (the divisor's are Stirling numbers)
constexpr double kLanczosTop64[] = {0x1.8d44d6a172145p-8,  0x1.0509f77f7c44bp-1,  0x1.38519fe638382p+4,
                                    0x1.c1f1ce7b3dd77p+8,  0x1.b2bffe5f3508ap+12, 0x1.28df4b04add10p+16,
                                    0x1.25e073bfd7560p+19, 0x1.a903813d667e3p+21, 0x1.bdba142ce50eap+23,
                                    0x1.4aa644a98efcep+25, 0x1.4972fed270dcep+26, 0x1.8bf15ec772306p+26,
                                    0x1.b2298cf4eca2ep+25};
constexpr double kLanczosBottom64[] = {1,        66,       1925,      32670,     357423,    2637558,
                                       13339535, 45995730, 105258076, 150917976, 120543840, 39916800};

}  // namespace bolt::codegen::cpu
