package workspace

import (
	"context"
	"net/http"
	"time"

	"coppice/agent/internal/api"
	"coppice/agent/internal/fault"
	"coppice/agent/internal/guest"
)

// Limits of deadline_ms and its defaults. They stay below the runner's time limit for an answer, which it raises for a
// sync that may take longer.
const (
	defaultSyncMs    = 5_000
	maxSyncMs        = 600_000
	defaultFreezeMs  = 2_000
	maxFreezeMs      = 10_000
	defaultUnmountMs = 5_000
	maxUnmountMs     = 10_000
	thawLimit        = 10 * time.Second
)

// Service answers POST /workspace/….
type Service struct {
	workspace *Workspace
	guest     *guest.State
	// sessionEnd returns a channel that is closed at the end of the request's session to the host.
	sessionEnd func(context.Context) <-chan struct{}
}

// Options are what a Service needs.
type Options struct {
	Workspace  *Workspace
	Guest      *guest.State
	SessionEnd func(context.Context) <-chan struct{}
}

// NewService returns a Service.
func NewService(o Options) *Service {
	return &Service{workspace: o.Workspace, guest: o.Guest, sessionEnd: o.SessionEnd}
}

// Mount answers POST /workspace/mount.
func (s *Service) Mount(w http.ResponseWriter, r *http.Request) error {
	disk, err := readDisk(r)
	if err != nil {
		return err
	}
	settings, err := s.guest.Get()
	if err != nil {
		return err
	}
	return answer(w, struct{}{}, s.workspace.Mount(disk, settings))
}

// Grow answers POST /workspace/grow.
func (s *Service) Grow(w http.ResponseWriter, r *http.Request) error {
	disk, err := readDisk(r)
	if err != nil {
		return err
	}
	return answer(w, struct{}{}, s.workspace.Grow(disk))
}

// Sync answers POST /workspace/sync.
func (s *Service) Sync(w http.ResponseWriter, r *http.Request) error {
	body := deadline{DeadlineMs: defaultSyncMs}
	if err := body.read(r, maxSyncMs); err != nil {
		return err
	}
	done, err := s.workspace.Sync(body.limit())
	return answer(w, struct {
		Done bool `json:"done"`
	}{done}, err)
}

// Freeze answers POST /workspace/freeze.
func (s *Service) Freeze(w http.ResponseWriter, r *http.Request) error {
	body := deadline{DeadlineMs: defaultFreezeMs}
	if err := body.read(r, maxFreezeMs); err != nil {
		return err
	}
	frozen, err := s.workspace.Freeze(body.limit(), s.sessionEnd(r.Context()))
	return answer(w, struct {
		Frozen bool `json:"frozen"`
	}{frozen}, err)
}

// Thaw answers POST /workspace/thaw.
func (s *Service) Thaw(w http.ResponseWriter, _ *http.Request) error {
	lasted, err := s.workspace.Thaw(thawLimit)
	return answer(w, struct {
		WasFrozen bool `json:"was_frozen"`
	}{lasted}, err)
}

// Unmount answers POST /workspace/unmount.
func (s *Service) Unmount(w http.ResponseWriter, r *http.Request) error {
	body := struct {
		deadline
		Abandon bool `json:"abandon"`
	}{deadline: deadline{DeadlineMs: defaultUnmountMs}}
	if err := api.ReadJSON(r, &body); err != nil {
		return err
	}
	if err := body.validate(maxUnmountMs); err != nil {
		return err
	}
	return answer(w, struct{}{}, s.workspace.Unmount(body.limit(), body.Abandon))
}

// answer sends value unless err is set.
func answer(w http.ResponseWriter, value any, err error) error {
	if err != nil {
		return err
	}
	api.WriteJSON(w, http.StatusOK, value)
	return nil
}

func readDisk(r *http.Request) (Disk, error) {
	var disk Disk
	if err := api.ReadJSON(r, &disk); err != nil {
		return Disk{}, err
	}
	return disk, disk.Validate("")
}

type deadline struct {
	DeadlineMs int64 `json:"deadline_ms"`
}

func (d *deadline) read(r *http.Request, maxMs int64) error {
	if err := api.ReadJSON(r, d); err != nil {
		return err
	}
	return d.validate(maxMs)
}

func (d *deadline) validate(maxMs int64) error {
	if d.DeadlineMs < 0 || d.DeadlineMs > maxMs {
		return fault.Invalid("deadline_ms: must be from 0 to %d", maxMs)
	}
	return nil
}

func (d *deadline) limit() time.Duration { return time.Duration(d.DeadlineMs) * time.Millisecond }
