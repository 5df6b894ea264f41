// Package tsc measures the rate of this host's time stamp counter. An emulated guest reads the same counter; its kernel
// would otherwise find the rate by polling an emulated timer, which fails on a busy host.
package tsc

import (
	"errors"
	"time"
)

const (
	// interval separates the two readings, so that an error of a microsecond in each is some parts in a million.
	interval = 100 * time.Millisecond
	// attempts per reading; the quickest is the one that nothing interrupted.
	attempts = 20
)

// read returns the counter.
func read() uint64

type reading struct {
	ticks uint64
	at    time.Time
	took  time.Duration
}

func readQuickest() reading {
	best := readOnce()
	for range attempts - 1 {
		if next := readOnce(); next.took < best.took {
			best = next
		}
	}
	return best
}

func readOnce() reading {
	before := time.Now()
	ticks := read()
	took := time.Since(before)
	return reading{ticks, before.Add(took / 2), took}
}

// MeasureKHz returns the ticks per millisecond. It takes about 100 ms.
func MeasureKHz() (int64, error) {
	first := readQuickest()
	time.Sleep(interval)
	second := readQuickest()
	elapsed := second.at.Sub(first.at)
	if second.ticks <= first.ticks || elapsed <= 0 {
		return 0, errors.New("the time stamp counter does not advance")
	}
	return int64(float64(second.ticks-first.ticks) / float64(elapsed) * float64(time.Millisecond)), nil
}
