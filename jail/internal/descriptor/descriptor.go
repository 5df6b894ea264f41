// Package descriptor leaves the program the open files that it is meant to have, and no other.
package descriptor

import (
	"fmt"
	"math"
	"slices"

	"golang.org/x/sys/unix"
)

const lastStandardStream = 2

// Settle makes standard input empty and sees to it that execve closes all but the standard streams and `kept`. Not
// sooner: the Go runtime may have some for itself, and ends the process when one of them is gone. /dev/null must be there.
func Settle(kept []int) error {
	null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening /dev/null: %w", err)
	}
	if err := unix.Dup2(null, 0); err != nil {
		return fmt.Errorf("emptying standard input: %w", err)
	}
	for _, gap := range gapsBetween(kept) {
		if err := unix.CloseRange(gap[0], gap[1], unix.CLOSE_RANGE_CLOEXEC); err != nil {
			return fmt.Errorf("closing descriptors %d to %d: %w", gap[0], gap[1], err)
		}
	}
	return keepOpen(kept)
}

// gapsBetween lists the ranges, ends included, that hold none of `kept`.
func gapsBetween(kept []int) [][2]uint {
	sorted := slices.Sorted(slices.Values(kept))
	gaps := [][2]uint{}
	next := uint(lastStandardStream + 1)
	for _, descriptor := range sorted {
		if number := uint(descriptor); number >= next {
			if number > next {
				gaps = append(gaps, [2]uint{next, number - 1})
			}
			next = number + 1
		}
	}
	return append(gaps, [2]uint{next, math.MaxUint32})
}

func keepOpen(kept []int) error {
	for _, descriptor := range kept {
		if _, err := unix.FcntlInt(uintptr(descriptor), unix.F_SETFD, 0); err != nil {
			return fmt.Errorf("keeping descriptor %d: %w", descriptor, err)
		}
	}
	return nil
}
