// The blocks runtime of clang's block ABI on top of GCC's libobjc.
//
// Debian's libBlocksRuntime does not retain captured objects when a block is copied, and its blocks
// are no Objective-C objects; here `copy`, `release` and arrays of blocks work as on macOS.
// ABI: https://clang.llvm.org/docs/Block-ABI-Apple.html
#import <Foundation/Foundation.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

namespace {

enum BlockFlags : int {
  kReferenceMask = 0xfffe,
  kNeedsFree = 1 << 24,
  kHasCopyDispose = 1 << 25,
  kIsGlobal = 1 << 28,
};

enum FieldFlags : int {
  kFieldObject = 3,
  kFieldBlock = 7,
  kFieldByref = 8,
  kFieldWeak = 16,
  kByrefCaller = 128,
  kFieldMask = kFieldBlock | kFieldByref | kFieldWeak | kByrefCaller,
};

// Counts step by two: bit 0 is reserved by the ABI.
constexpr int kOneReference = 2;

struct Descriptor {
  unsigned long reserved, size_bytes;
  void (*copy)(void*, void*);
  void (*dispose)(void*);
};

struct Block {
  void* isa;
  std::atomic<int> flags;
  int reserved;
  void (*invoke)(void*, ...);
  Descriptor* descriptor;
};

/// Storage of a `__block` variable.
struct Byref {
  void* isa;
  Byref* forwarding;
  std::atomic<int> flags;
  int size_bytes;
  void (*keep)(Byref*, Byref*);
  void (*destroy)(Byref*);
};
static_assert(sizeof(std::atomic<int>) == sizeof(int), "the ABI's flags are plain ints");

Block* as_block(const void* block) { return const_cast<Block*>(static_cast<const Block*>(block)); }

// Moves the variable to the heap at its first copy; later copies share it.
Byref* retain_byref(Byref* source) {
  Byref* const current = source->forwarding;
  if ((current->flags.load() & kNeedsFree) != 0) {
    current->flags.fetch_add(kOneReference);
    return current;
  }
  const auto size_bytes = static_cast<size_t>(source->size_bytes);
  auto* copy = static_cast<Byref*>(std::malloc(size_bytes));
  std::memcpy(static_cast<void*>(copy), source, size_bytes);
  // One reference for the block on the heap, one for the stack frame.
  copy->flags.store((source->flags.load() & ~kReferenceMask) | kNeedsFree | 2 * kOneReference);
  copy->forwarding = copy;
  source->forwarding = copy;
  if ((source->flags.load() & kHasCopyDispose) != 0) source->keep(copy, source);
  return copy;
}

void release_byref(const void* variable) {
  Byref* const current = static_cast<const Byref*>(variable)->forwarding;
  if ((current->flags.load() & kNeedsFree) == 0) return;  // never left the stack
  if (((current->flags.fetch_sub(kOneReference) - kOneReference) & kReferenceMask) != 0) return;
  if ((current->flags.load() & kHasCopyDispose) != 0) current->destroy(current);
  std::free(current);
}

}  // namespace

extern "C" {
extern char _NSConcreteMallocBlock[];

void* _Block_copy(const void* source) {
  Block* const block = as_block(source);
  if (block == nullptr || (block->flags.load() & kIsGlobal) != 0) return block;
  if ((block->flags.load() & kNeedsFree) != 0) {
    block->flags.fetch_add(kOneReference);
    return block;
  }
  auto* copy = static_cast<Block*>(std::malloc(block->descriptor->size_bytes));
  if (copy == nullptr) return nullptr;
  std::memcpy(static_cast<void*>(copy), block, block->descriptor->size_bytes);
  copy->flags.store((block->flags.load() & ~(kReferenceMask | 1)) | kNeedsFree | kOneReference);
  copy->isa = _NSConcreteMallocBlock;
  if ((copy->flags.load() & kHasCopyDispose) != 0) block->descriptor->copy(copy, block);
  return copy;
}

void _Block_release(const void* source) {
  Block* const block = as_block(source);
  if (block == nullptr || (block->flags.load() & (kIsGlobal | kNeedsFree)) != kNeedsFree) return;
  if (((block->flags.fetch_sub(kOneReference) - kOneReference) & kReferenceMask) != 0) return;
  if ((block->flags.load() & kHasCopyDispose) != 0) block->descriptor->dispose(block);
  std::free(block);
}

void _Block_object_assign(void* target, const void* source, int flags) {
  void** const field = static_cast<void**>(target);
  switch (flags & kFieldMask) {
    case kFieldObject:
      *field = [(id)source retain];
      break;
    case kFieldBlock:
      *field = _Block_copy(source);
      break;
    case kFieldByref:
    case kFieldByref | kFieldWeak:
      *field = retain_byref(const_cast<Byref*>(static_cast<const Byref*>(source)));
      break;
    default:  // an object or block in a `__block` variable is not retained without ARC
      *field = const_cast<void*>(source);
  }
}

void _Block_object_dispose(const void* object, int flags) {
  switch (flags & kFieldMask) {
    case kFieldObject:
      [(id)object release];
      break;
    case kFieldBlock:
      _Block_release(object);
      break;
    case kFieldByref:
    case kFieldByref | kFieldWeak:
      release_byref(object);
      break;
    default:
      break;
  }
}
}

@interface HostBlock : NSObject
@end
@interface HostStackBlock : HostBlock
@end
@interface HostMallocBlock : HostBlock
@end
@interface HostGlobalBlock : HostBlock
@end

@implementation HostBlock
- (id)copy {
  return (id)_Block_copy(self);
}
- (id)copyWithZone:(NSZone*)zone {
  return (id)_Block_copy(self);
}
- (id)retain {
  return (id)_Block_copy(self);
}
- (oneway void)release {
  _Block_release(self);
}
- (id)autorelease {
  [NSAutoreleasePool addObject:self];
  return self;
}
- (NSUInteger)retainCount {
  return 1;
}
@end

@implementation HostStackBlock
- (id)retain {
  return self;  // as on macOS: only a copy leaves the stack
}
@end
@implementation HostMallocBlock
@end
@implementation HostGlobalBlock
@end

// Block literals name these symbols as their class.
asm(".globl _NSConcreteStackBlock\n.set _NSConcreteStackBlock, _OBJC_CLASS_HostStackBlock\n"
    ".globl _NSConcreteMallocBlock\n.set _NSConcreteMallocBlock, _OBJC_CLASS_HostMallocBlock\n"
    ".globl _NSConcreteGlobalBlock\n.set _NSConcreteGlobalBlock, _OBJC_CLASS_HostGlobalBlock\n");
