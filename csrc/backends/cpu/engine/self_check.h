// A check of the library's products, once a process, before the first one is used.
#pragma once

namespace lucid::cpu {

/// True if oneDNN's products, made for one thread, are right and give a row the same bits in a
/// slice as in the whole. A few ms at the first call, then free. False without oneDNN.
bool library_products_are_sound();

}  // namespace lucid::cpu
