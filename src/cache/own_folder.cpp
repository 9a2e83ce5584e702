// cache/own_folder.cpp
// See own_folder.h.

#include "cache/own_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "support/text.h"

namespace bolt::cache {
namespace {

constexpr int kMostLinks = 40;  // as many as Linux itself follows

bool same(const struct stat& a, const struct stat& b) { return a.st_dev == b.st_dev && a.st_ino == b.st_ino; }

std::string wrong_owner(const struct stat& info) {
  if (info.st_uid == 0 || info.st_uid == geteuid()) return {};
  return "belongs to another user (number " + std::to_string(info.st_uid) + ")";
}

/// Why others can change what has these rights; empty: they cannot.
std::string open_to_others(const struct stat& info) {
  if (std::string wrong = wrong_owner(info); !wrong.empty()) return wrong;
  if (info.st_mode & S_IWOTH) return "may be written by everybody";
  if (info.st_mode & S_IWGRP) return "may be written by its group";
  return {};
}

/// Why a folder on the road to ours is not to be trusted; "": it is. What counts there is whether others can
/// exchange what lies in it.
std::string exchangeable(const struct stat& info) {
  return info.st_mode & S_ISVTX ? wrong_owner(info) : open_to_others(info);
}

/// Goes from / to a folder, one name at a time.
class FolderWalk {
 public:
  explicit FolderWalk(const std::string& path) { push(path); }

  /// False: the folder cannot be reached or made, or the road to it is refused.
  bool run() {
    start();
    while (at_ && refusal_.empty() && !left_.empty()) {
      const std::string name = std::move(left_.back());
      left_.pop_back();
      step(name);
    }
    return at_ && refusal_.empty();
  }

  Descriptor take() { return std::move(at_); }
  std::string reached() const { return reached_.empty() ? "/" : reached_; }
  const std::string& refusal() const { return refusal_; }
  const std::string& missing() const { return missing_; }

 private:
  void start() {
    at_ = Descriptor(open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
    reached_.clear();
  }

  /// Its names are what is left, the first at the end.
  void push(std::string_view path) {
    const std::vector<std::string_view> names = split(path, '/');
    for (auto name = names.rbegin(); name != names.rend(); ++name)
      if (!name->empty() && *name != ".") left_.emplace_back(*name);
  }

  void step(const std::string& name) {
    struct stat info{};
    if (fstat(at_.get(), &info) != 0) return fail(name, errno);
    if (const std::string wrong = exchangeable(info); !wrong.empty()) return refuse(reached(), wrong);
    int error = 0;
    Descriptor next = enter(name, error);
    if (!next) return fail(name, error);
    if (fstat(next.get(), &info) != 0) return fail(name, errno);
    if (S_ISLNK(info.st_mode)) return follow(next, info, name);
    if (!S_ISDIR(info.st_mode)) return fail(name, ENOTDIR);
    at_ = std::move(next);
    reached_ += "/" + name;
  }

  Descriptor enter(const std::string& name, int& error) {
    constexpr int kHow = O_PATH | O_NOFOLLOW | O_CLOEXEC;
    Descriptor next(openat(at_.get(), name.c_str(), kHow));
    error = errno;
    if (next || error != ENOENT) return next;
    // Somebody may be faster: what lies there then is looked at.
    if (mkdirat(at_.get(), name.c_str(), 0700) != 0) error = errno;
    return Descriptor(openat(at_.get(), name.c_str(), kHow));
  }

  void follow(const Descriptor& link, const struct stat& info, const std::string& name) {
    if (const std::string wrong = wrong_owner(info); !wrong.empty())
      return refuse(reached_ + "/" + name, wrong);
    char target[PATH_MAX];
    const ssize_t length = readlinkat(link.get(), "", target, sizeof target);
    if (length <= 0) return fail(name, errno);
    if (++links_ > kMostLinks) return fail(name, ELOOP);
    const std::string_view text(target, static_cast<size_t>(length));
    push(text);
    if (text[0] == '/') start();
  }

  void fail(const std::string& name, int error) {
    at_ = Descriptor();
    missing_ = reached_ + "/" + name + " cannot be opened or made (" + std::strerror(error) + ")";
  }
  void refuse(const std::string& what, const std::string& why) { refusal_ = what + " " + why; }

  Descriptor at_;
  std::string reached_, refusal_, missing_;
  std::vector<std::string> left_;
  int links_ = 0;
};

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

int Descriptor::release() { return std::exchange(fd_, -1); }

OwnFolder::OwnFolder(const std::string& path) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::absolute(path, error);
  if (path.empty() || error) return;
  FolderWalk walk(whole.string());
  const bool there = walk.run();
  refusal_ = walk.refusal();
  missing_ = walk.missing();
  if (!there) return;
  folder_ = walk.take();
  if (fstat(folder_.get(), &opened_) != 0) folder_ = Descriptor();
  if (const std::string wrong = folder_ ? open_to_others(opened_) : ""; !wrong.empty())
    refusal_ = walk.reached() + " " + wrong;
}

std::string OwnFolder::refusal() const {
  if (!refusal_.empty() || !folder_) return refusal_;
  struct stat now{};
  if (fstat(folder_.get(), &now) != 0 || !same(now, opened_)) return "the program closed its descriptor";
  const std::string wrong = open_to_others(now);
  return wrong.empty() ? wrong : "it " + wrong;
}

OwnFile OwnFolder::open_file(const std::string& name) const {
  // Opening a pipe would wait for its other end, and a terminal would become the program's.
  constexpr int kHow = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  OwnFile file;
  file.descriptor = Descriptor(openat(folder_.get(), name.c_str(), kHow));
  if (!file.descriptor) {
    if (errno == ELOOP) file.refusal = "is a link";
    return file;
  }
  if (fstat(file.descriptor.get(), &file.info) != 0)
    file.descriptor = Descriptor();
  else if (!S_ISREG(file.info.st_mode))
    file.refusal = "is no regular file";
  else if (file.info.st_nlink > 1)  // another process that writes it anew leaves this one with none
    file.refusal = "has another name";
  else
    file.refusal = open_to_others(file.info);
  return file;
}

}  // namespace bolt::cache
