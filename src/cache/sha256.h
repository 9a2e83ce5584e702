// cache/sha256.h
// Bytes -> SHA-256 (FIPS 180-4), and HMAC-SHA-256 (RFC 2104): what names and signs entries of a shared cache.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "support/export.h"

namespace bolt::cache {

constexpr size_t kDigestBytes = 32;

/// A digest is given as its 32 bytes.
BOLT_API std::string sha256(std::string_view bytes);
BOLT_API std::string hmac_sha256(std::string_view secret, std::string_view bytes);

/// Takes as long where the first byte differs as where the last one does.
bool equal_digests(std::string_view a, std::string_view b);

std::string hex(std::string_view bytes);

}  // namespace bolt::cache
