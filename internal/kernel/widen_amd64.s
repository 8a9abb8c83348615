#include "textflag.h"

// All of these convert len(dst)&^7 numbers, eight at a time.

// func widenF16(dst []float32, src []uint16)
TEXT ·widenF16(SB), NOSPLIT, $0-48
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVQ src_base+24(FP), SI
	SHRQ $3, CX
	JZ   done

loop:
	VCVTPH2PS (SI), Y0
	VMOVUPS   Y0, (DI)
	ADDQ      $16, SI
	ADDQ      $32, DI
	DECQ      CX
	JNZ       loop

done:
	VZEROUPPER
	RET

// func narrowF16(dst []uint16, src []float32)
TEXT ·narrowF16(SB), NOSPLIT, $0-48
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVQ src_base+24(FP), SI
	SHRQ $3, CX
	JZ   done

loop:
	VMOVUPS   (SI), Y0
	VCVTPS2PH $0, Y0, X1 // to nearest, ties to even, whatever MXCSR says
	VMOVDQU   X1, (DI)
	ADDQ      $32, SI
	ADDQ      $16, DI
	DECQ      CX
	JNZ       loop

done:
	VZEROUPPER
	RET

// func widenBF16(dst []float32, src []uint16)
TEXT ·widenBF16(SB), NOSPLIT, $0-48
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVQ src_base+24(FP), SI
	SHRQ $3, CX
	JZ   done

loop:
	VPMOVZXWD (SI), Y0
	VPSLLD    $16, Y0, Y0
	VMOVDQU   Y0, (DI)
	ADDQ      $16, SI
	ADDQ      $32, DI
	DECQ      CX
	JNZ       loop

done:
	VZEROUPPER
	RET

// func narrowBF16(dst []uint16, src []float32)
TEXT ·narrowBF16(SB), NOSPLIT, $0-48
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVQ src_base+24(FP), SI
	SHRQ $3, CX
	JZ   done

	VPCMPEQD Y7, Y7, Y7
	VPSRLD   $31, Y7, Y4 // 1
	VPSRLD   $17, Y7, Y5 // 0x7fff
	VPSLLD   $6, Y4, Y6  // 0x40: makes a NaN quiet

loop:
	VMOVDQU   (SI), Y0
	VPSRLD    $16, Y0, Y1
	VPAND     Y4, Y1, Y2 // the last bit that stays
	VPADDD    Y5, Y2, Y2
	VPADDD    Y0, Y2, Y2
	VPSRLD    $16, Y2, Y2
	VPOR      Y6, Y1, Y1
	VCMPPS    $3, Y0, Y0, Y3 // is a NaN
	VPBLENDVB Y3, Y1, Y2, Y2
	VEXTRACTI128 $1, Y2, X3
	VPACKUSDW X3, X2, X2
	VMOVDQU   X2, (DI)
	ADDQ      $32, SI
	ADDQ      $16, DI
	DECQ      CX
	JNZ       loop

done:
	VZEROUPPER
	RET
