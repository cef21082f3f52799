// Asynchronous copies, in the groups of a thread.
#pragma once
struct Copy {
  void* to;
  const void* from;
  int bytes;
};
inline thread_local std::deque<std::vector<Copy>> groups(1);
inline void copy_unit(void* to, const void* from, bool exists) { groups.back().push_back({to, exists ? from : nullptr, 16}); }
inline void commit_copies() { groups.emplace_back(); }
template <int Groups>
void wait_copies() {
  for (; groups.size() > Groups + 1; groups.pop_front()) {
    for (const Copy& each : groups.front()) {
      if (each.from) std::memcpy(each.to, each.from, each.bytes);
      else std::memset(each.to, 0, each.bytes);
    }
  }
}
