// Package clock sets the guest's clock, which stands still whenever the machine does, and reports the timer by which
// the kernel counts. Only the host uses it.
package clock

import (
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/api"
	"coppice/agent/internal/fault"
)

const nanosPerSecond = 1_000_000_000

// Fields are the fields of a request that give the time.
type Fields struct {
	ClockUnixNs string `json:"clock_unix_ns"`
	MonotonicNs string `json:"clock_monotonic_ns"`
}

// Told is a time from the host: UnixNs, in nanoseconds since 1970, when the monotonic clock shows MonotonicNs. If
// MonotonicNs is 0, UnixNs is the time when the request arrived, at Arrived.
type Told struct {
	UnixNs, MonotonicNs int64
	Arrived             time.Time
}

// Parse reads the fields. Only the second may be missing.
func (f Fields) Parse(arrived time.Time) (Told, error) {
	unixNs, err := Parse("clock_unix_ns", f.ClockUnixNs)
	if err != nil {
		return Told{}, err
	}
	if unixNs == 0 {
		return Told{}, fault.Invalid("clock_unix_ns: is missing")
	}
	monotonicNs, err := Parse("clock_monotonic_ns", f.MonotonicNs)
	return Told{unixNs, monotonicNs, arrived}, err
}

// Set sets the clock to the time from the host. It uses the monotonic clock if the runner has compared it with its own,
// because a guest may be slow to read a request.
func (t Told) Set() error {
	if t.MonotonicNs != 0 {
		return SetAt(t.UnixNs, t.MonotonicNs)
	}
	return Set(t.UnixNs + time.Since(t.Arrived).Nanoseconds())
}

// Set sets the clock to unixNs, in nanoseconds since 1970.
func Set(unixNs int64) error {
	now := unix.NsecToTimespec(unixNs)
	return unix.ClockSettime(unix.CLOCK_REALTIME, &now)
}

// SetAt sets the clock so that it shows unixNs when the monotonic clock shows monotonicNs. It moves the clock by an
// offset: a guest on a busy host may stand still for a tenth of a second between reading one clock and setting the
// other.
func SetAt(unixNs, monotonicNs int64) error {
	aheadNs, err := ahead(unix.ClockGettime)
	if err != nil {
		return err
	}
	offset := toOffset(unixNs - monotonicNs - aheadNs)
	_, err = unix.ClockAdjtime(unix.CLOCK_REALTIME, &unix.Timex{Modes: unix.ADJ_SETOFFSET, Time: offset})
	return err
}

// ahead reads two clocks up to maxReadings times, until the readings are close enough to count as simultaneous.
const (
	maxReadings   = 20
	closeEnoughNs = 1_000_000
)

// ahead returns by how many nanoseconds the time of day is ahead of the monotonic clock.
func ahead(read func(clock int32, now *unix.Timespec) error) (int64, error) {
	var before, wall, after unix.Timespec
	var aheadNs int64
	narrowestNs := int64(math.MaxInt64)
	for range maxReadings {
		if err := errors.Join(
			read(unix.CLOCK_MONOTONIC, &before), read(unix.CLOCK_REALTIME, &wall), read(unix.CLOCK_MONOTONIC, &after),
		); err != nil {
			return 0, err
		}
		widthNs := after.Nano() - before.Nano()
		if widthNs < narrowestNs {
			narrowestNs, aheadNs = widthNs, wall.Nano()-before.Nano()-widthNs/2
		}
		if narrowestNs <= closeEnoughNs {
			break
		}
	}
	return aheadNs, nil
}

// toOffset converts to the form of clock_adjtime: whole seconds, rounded down, and the microseconds above them.
func toOffset(ns int64) unix.Timeval {
	seconds := ns / nanosPerSecond
	rest := ns % nanosPerSecond
	if rest < 0 {
		seconds, rest = seconds-1, rest+nanosPerSecond
	}
	return unix.Timeval{Sec: seconds, Usec: rest / 1000}
}

// Parse reads a field of a request that counts nanoseconds. It returns 0 for an empty field.
func Parse(field, text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	ns, err := strconv.ParseInt(text, 10, 64)
	if err != nil || ns <= 0 {
		return 0, fault.Invalid("%s: %q is not a number of nanoseconds, as text", field, text)
	}
	return ns, nil
}

// Handle answers POST /clock.
func Handle(w http.ResponseWriter, r *http.Request) error {
	arrived := time.Now()
	var body Fields
	if err := api.ReadJSON(r, &body); err != nil {
		return err
	}
	told, err := body.Parse(arrived)
	if err != nil {
		return err
	}
	if err := told.Set(); err != nil {
		return err
	}
	api.WriteJSON(w, http.StatusOK, struct{}{})
	return nil
}
