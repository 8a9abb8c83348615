#include "textflag.h"

// func Pause()
TEXT ·Pause(SB), NOSPLIT, $0-0
	PAUSE
	RET

// func Own(p *uint32)
TEXT ·Own(SB), NOSPLIT, $0-8
	MOVQ p+0(FP), AX
	BYTE $0x0F; BYTE $0x0D; BYTE $0x08 // PREFETCHW (AX)
	RET

// func Fetch(p *uint32)
TEXT ·Fetch(SB), NOSPLIT, $0-8
	MOVQ p+0(FP), AX
	PREFETCHT0 (AX)
	RET

// func OwnAll(b []byte)
TEXT ·OwnAll(SB), NOSPLIT, $0-24
	MOVQ b_base+0(FP), AX
	MOVQ b_len+8(FP), CX
	ADDQ AX, CX
own:
	CMPQ AX, CX
	JAE  owned
	BYTE $0x0F; BYTE $0x0D; BYTE $0x08 // PREFETCHW (AX)
	ADDQ $64, AX
	JMP  own
owned:
	RET

// func Demote(b []byte)
TEXT ·Demote(SB), NOSPLIT, $0-24
	MOVQ b_base+0(FP), AX
	MOVQ b_len+8(FP), CX
	ADDQ AX, CX
demote:
	CMPQ AX, CX
	JAE  demoted
	BYTE $0x0F; BYTE $0x1C; BYTE $0x00 // CLDEMOTE (AX)
	ADDQ $64, AX
	JMP  demote
demoted:
	RET
