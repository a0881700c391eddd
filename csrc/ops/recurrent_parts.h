// Recurrent layers in simpler nodes, step by step: parts of the rows in recurrent.cpp.
#pragma once

#include <vector>

#include "ops/builder.h"

namespace lucid::ops {

std::vector<ValueId> lstm_decompose(Builder& b, const Node& node);
std::vector<ValueId> lstm_grad_decompose(Builder& b, const Node& node);
std::vector<ValueId> gru_decompose(Builder& b, const Node& node);
std::vector<ValueId> gru_grad_decompose(Builder& b, const Node& node);
std::vector<ValueId> rnn_decompose(Builder& b, const Node& node);
std::vector<ValueId> rnn_grad_decompose(Builder& b, const Node& node);

}  // namespace lucid::ops
