// cache/own_folder.h
// A path -> descriptors of a folder and of its files, if nobody but the user and root decides what lies
// there.
//
// What the cache holds is run, so whoever can put a file into its folder runs code as the user. A checksum
// does not help, since everybody can compute it. What helps is what ssh asks of its keys: the folder, each
// folder above it and each file belong to the user or to root, and neither a group nor all others may write
// them (access lists show as the group's bits). Above the folder a sticky one such as /tmp is fine: others
// may write there, and yet cannot put another folder in the place of the user's.
//
// Nothing is asked of a name and then done to a name, because the name may stand for something else by then:
// the road is walked from / by descriptors, each is opened and then looked at, and the folder's own stays
// open. A link on the road is followed if its owner is one of the two; a link in the folder never is.
#pragma once

#include <sys/stat.h>

#include <string>

#include "support/export.h"

namespace bolt::cache {

class BOLT_API Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();
  int get() const { return fd_; }
  int release();
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_;
};

/// Of a file in the folder: none (there is no such file, or it cannot be read), or with what is wrong with
/// it.
struct OwnFile {
  Descriptor descriptor;
  struct stat info{};
  std::string refusal;
};

class BOLT_API OwnFolder {
 public:
  /// Opens it; what is missing of it and above it is made with mode 0700.
  explicit OwnFolder(const std::string& path);

  /// -1: there is none, because of a refusal or of what missing() says.
  int descriptor() const { return folder_.get(); }
  /// Why it could not be opened or made, though nothing was refused; "": it is there, or none was named.
  const std::string& missing() const { return missing_; }
  /// Why it must not be used, asked before each use: a program that turns into a daemon closes every
  /// descriptor, and the number may then be of another folder; and rights change.
  std::string refusal() const;
  /// A file to read: regular, with no other name, and the user's own.
  OwnFile open_file(const std::string& name) const;

 private:
  Descriptor folder_;
  struct stat opened_{};
  std::string refusal_, missing_;
};

}  // namespace bolt::cache
