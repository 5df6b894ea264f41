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

// Parse reads the field clock_unix_ns of a request; 0 stands for an empty one.
func Parse(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	ns, err := strconv.ParseInt(text, 10, 64)
	if err != nil || ns <= 0 {
		return 0, fault.Invalid("clock_unix_ns: %q is no number of nanoseconds, as text", text)
	}
	return ns, nil
}

// Handle answers POST /clock.
func Handle(w http.ResponseWriter, r *http.Request) error {
	arrived := time.Now()
	var body struct {
		ClockUnixNs string `json:"clock_unix_ns"`
	}
	if err := api.ReadJSON(r, &body); err != nil {
		return err
	}
	ns, err := Parse(body.ClockUnixNs)
	if err != nil {
		return err
	}
	if ns == 0 {
		return fault.Invalid("clock_unix_ns: is missing")
	}
	if err := Set(ns + time.Since(arrived).Nanoseconds()); err != nil {
		return err
	}
	api.WriteJSON(w, http.StatusOK, struct{}{})
	return nil
}
