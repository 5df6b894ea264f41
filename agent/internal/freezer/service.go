package freezer

import (
	"log/slog"
	"net/http"
	"time"

	"coppice/agent/internal/api"
	"coppice/agent/internal/clock"
	"coppice/agent/internal/fault"
)

const (
	defaultDeadlineMs = 500
	// maxDeadlineMs stays below the runner's time limit for an answer.
	maxDeadlineMs = 10_000
)

// HandleFreeze answers POST /freeze.
func (f *Freezer) HandleFreeze(w http.ResponseWriter, r *http.Request) error {
	body := struct {
		DeadlineMs int64 `json:"deadline_ms"`
	}{defaultDeadlineMs}
	if err := api.ReadJSON(r, &body); err != nil {
		return err
	}
	if body.DeadlineMs < 0 || body.DeadlineMs > maxDeadlineMs {
		return fault.Invalid("deadline_ms: must be from 0 to %d", maxDeadlineMs)
	}
	api.WriteJSON(w, http.StatusOK, struct {
		Frozen bool `json:"frozen"`
	}{f.Freeze(time.Duration(body.DeadlineMs) * time.Millisecond)})
	return nil
}

// HandleThaw answers POST /thaw. The guest's clock stood still with the machine, so HandleThaw sets it before a program
// reads it.
func (f *Freezer) HandleThaw(w http.ResponseWriter, r *http.Request) error {
	arrived := time.Now()
	var body struct {
		ClockUnixNs string `json:"clock_unix_ns"`
	}
	if err := api.ReadJSON(r, &body); err != nil {
		return err
	}
	ns, err := clock.Parse("clock_unix_ns", body.ClockUnixNs)
	if err != nil {
		return err
	}
	if ns != 0 {
		if err := f.setClock(ns + time.Since(arrived).Nanoseconds()); err != nil {
			slog.Warn("the clock is behind by the time that the machine stood still", "error", err)
		}
	}
	if err := f.Thaw(); err != nil {
		return err
	}
	api.WriteJSON(w, http.StatusOK, struct{}{})
	return nil
}
