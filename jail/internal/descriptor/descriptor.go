// Package descriptor leaves the program only the open files that it is meant to have.
package descriptor

import (
	"fmt"
	"math"
	"slices"

	"golang.org/x/sys/unix"
)

const lastStandardStream = 2

// Settle puts `input`, or nothing, in the place of standard input, and makes execve close all descriptors except the
// standard streams and `kept`. It does not close them itself: the Go runtime may use some, and ends the process if one
// of them is gone. Without an input, /dev/null must exist.
func Settle(kept []int, input *int) error {
	if err := settleInput(input); err != nil {
		return err
	}
	for _, gap := range gapsBetween(kept) {
		if err := unix.CloseRange(gap[0], gap[1], unix.CLOSE_RANGE_CLOEXEC); err != nil {
			return fmt.Errorf("closing descriptors %d to %d: %w", gap[0], gap[1], err)
		}
	}
	return keepOpen(kept)
}

func settleInput(input *int) error {
	if input != nil {
		if err := unix.Dup2(*input, 0); err != nil {
			return fmt.Errorf("making descriptor %d standard input: %w", *input, err)
		}
		// A pipe that has been the runner's does not block, and programs expect that theirs does.
		return unix.SetNonblock(0, false)
	}
	null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening /dev/null: %w", err)
	}
	if err := unix.Dup2(null, 0); err != nil {
		return fmt.Errorf("emptying standard input: %w", err)
	}
	return nil
}

// gapsBetween lists the ranges of descriptors, ends included, that hold none of `kept`.
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
