package filter

import "golang.org/x/sys/unix"

// Offsets in struct seccomp_data. Arguments have 64 bits. A program sees 32 of them at a time, the lower ones first.
const (
	offsetNumber       = 0
	offsetArchitecture = 4
	offsetArguments    = 16
)

// condition jumps to the next instruction if it holds, and otherwise over the rest of its rule.
type condition struct {
	argument int
	// high selects the upper 32 bits.
	high     bool
	mask     uint32
	operator uint16
	value    uint32
	// negated makes the condition hold if the comparison does not.
	negated bool
}

func loadWord(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

func answer(action uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
}

func refuse(errno unix.Errno) uint32 {
	return unix.SECCOMP_RET_ERRNO | uint32(errno)
}

// jump skips `onTrue` or `onFalse` instructions after it.
func jump(operator uint16, value uint32, onTrue, onFalse int) unix.SockFilter {
	return unix.SockFilter{
		Code: unix.BPF_JMP | operator | unix.BPF_K, Jt: uint8(onTrue), Jf: uint8(onFalse), K: value,
	}
}

func (c condition) load() []unix.SockFilter {
	offset := uint32(offsetArguments + 8*c.argument)
	if c.high {
		offset += 4
	}
	instructions := []unix.SockFilter{loadWord(offset)}
	if c.mask != 0 {
		instructions = append(instructions, unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: c.mask})
	}
	return instructions
}

// assembleRule answers `action` if all conditions hold. Otherwise it leaves the call's number loaded for the rules that
// follow.
func assembleRule(number uint32, conditions []condition, action uint32) []unix.SockFilter {
	body := []unix.SockFilter{answer(action)}
	if len(conditions) > 0 {
		// A condition that does not hold jumps here, behind the answer.
		body = append(body, loadWord(offsetNumber))
	}
	for index := len(conditions) - 1; index >= 0; index-- {
		each := conditions[index]
		onTrue, onFalse := 0, len(body)-1
		if each.negated {
			onTrue, onFalse = onFalse, onTrue
		}
		body = append(append(each.load(), jump(each.operator, each.value, onTrue, onFalse)), body...)
	}
	return append([]unix.SockFilter{jump(unix.BPF_JEQ, number, 0, len(body))}, body...)
}
