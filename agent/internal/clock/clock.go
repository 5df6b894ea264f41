// Package clock sets the guest's clock, which stands still whenever the machine does, and tells what its timer counts by.
// Nobody but the host asks.
package clock

import (
	"net/http"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/api"
	"coppice/agent/internal/fault"
)

// Set makes it show that many nanoseconds since 1970.
func Set(unixNs int64) error {
	now := unix.NsecToTimespec(unixNs)
	return unix.ClockSettime(unix.CLOCK_REALTIME, &now)
}

// At returns the time, given that it is unixNs when the monotonic clock shows monotonicNs, and that it shows nowNs now. The
// runner compares that clock with its own, as a guest may be slow to take a request.
func At(unixNs, monotonicNs, nowNs int64) int64 {
	return unixNs + nowNs - monotonicNs
}

// SetAt makes it show unixNs when the monotonic clock shows monotonicNs.
func SetAt(unixNs, monotonicNs int64) error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return err
	}
	return Set(At(unixNs, monotonicNs, now.Nano()))
}

// Parse reads a field of a request that counts nanoseconds; 0 stands for an empty one.
func Parse(field, text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	ns, err := strconv.ParseInt(text, 10, 64)
	if err != nil || ns <= 0 {
		return 0, fault.Invalid("%s: %q is no number of nanoseconds, as text", field, text)
	}
	return ns, nil
}

// Handle answers POST /clock.
func Handle(w http.ResponseWriter, r *http.Request) error {
	arrived := time.Now()
	var body struct {
		ClockUnixNs string `json:"clock_unix_ns"`
		MonotonicNs string `json:"clock_monotonic_ns"`
	}
	if err := api.ReadJSON(r, &body); err != nil {
		return err
	}
	ns, err := Parse("clock_unix_ns", body.ClockUnixNs)
	if err != nil {
		return err
	}
	if ns == 0 {
		return fault.Invalid("clock_unix_ns: is missing")
	}
	monotonicNs, err := Parse("clock_monotonic_ns", body.MonotonicNs)
	if err != nil {
		return err
	}
	if err := set(ns, monotonicNs, arrived); err != nil {
		return err
	}
	api.WriteJSON(w, http.StatusOK, struct{}{})
	return nil
}

func set(unixNs, monotonicNs int64, arrived time.Time) error {
	if monotonicNs != 0 {
		return SetAt(unixNs, monotonicNs)
	}
	return Set(unixNs + time.Since(arrived).Nanoseconds())
}
