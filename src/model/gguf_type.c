/* gguf_type.c - the types of tensors in GGUF files */
#include <stddef.h>

#include "model/gguf_type.h"

static const struct ggml_type types[] = {
	[0] = { "F32", 1, 4, WEIGHT_F32 },
	[1] = { "F16", 1, 2, WEIGHT_F16 },
	[2] = { "Q4_0", 32, 18, WEIGHT_Q4_0 },
	[3] = { "Q4_1", 32, 20, WEIGHT_Q4_1 },
	[6] = { "Q5_0", 32, 22, WEIGHT_Q5_0 },
	[7] = { "Q5_1", 32, 24, WEIGHT_Q5_1 },
	[8] = { "Q8_0", 32, 34, WEIGHT_Q8_0 },
	[9] = { "Q8_1", 32, 36, 0 },
	[10] = { "Q2_K", 256, 84, 0 },
	[11] = { "Q3_K", 256, 110, 0 },
	[12] = { "Q4_K", 256, 144, WEIGHT_Q4_K },
	[13] = { "Q5_K", 256, 176, WEIGHT_Q5_K },
	[14] = { "Q6_K", 256, 210, WEIGHT_Q6_K },
	[15] = { "Q8_K", 256, 292, 0 },
	[16] = { "IQ2_XXS", 256, 66, 0 },
	[17] = { "IQ2_XS", 256, 74, 0 },
	[18] = { "IQ3_XXS", 256, 98, 0 },
	[19] = { "IQ1_S", 256, 50, 0 },
	[20] = { "IQ4_NL", 32, 18, 0 },
	[21] = { "IQ3_S", 256, 110, 0 },
	[22] = { "IQ2_S", 256, 82, 0 },
	[23] = { "IQ4_XS", 256, 136, 0 },
	[24] = { "I8", 1, 1, 0 },
	[25] = { "I16", 1, 2, 0 },
	[26] = { "I32", 1, 4, 0 },
	[27] = { "I64", 1, 8, 0 },
	[28] = { "F64", 1, 8, 0 },
	[29] = { "IQ1_M", 256, 56, 0 },
	[30] = { "BF16", 1, 2, WEIGHT_BF16 },
	[34] = { "TQ1_0", 256, 54, 0 },
	[35] = { "TQ2_0", 256, 66, 0 },
	[39] = { "MXFP4", 32, 17, WEIGHT_MXFP4 },
	[40] = { "NVFP4", 64, 36, 0 },
	[41] = { "Q1_0", 128, 18, 0 },
};

const struct ggml_type *
ggml_type(uint32_t number)
{
	return number < sizeof types / sizeof types[0] && types[number].name != NULL ?
	    &types[number] : NULL;
}
