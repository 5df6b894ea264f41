// Package power powers the guest off.
package power

import (
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/api"
	"coppice/agent/internal/fault"
	"coppice/agent/internal/reap"
)

const (
	maxGraceMs = 10 * 60 * 1000
	// pollInterval is how often the end of all processes is checked while the grace period lasts.
	pollInterval = 10 * time.Millisecond
	// syncLimit bounds the sync: a disk that the host has stopped must not keep the guest from powering off.
	syncLimit = 10 * time.Second
)

// Shutdown answers POST /shutdown. It answers first, because the session ends with the guest.
func Shutdown(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		GraceMs int64 `json:"grace_ms"`
	}
	if err := api.ReadJSON(r, &body); err != nil {
		return err
	}
	if body.GraceMs < 0 || body.GraceMs > maxGraceMs {
		return fault.Invalid("grace_ms: must be from 0 to %d", maxGraceMs)
	}
	api.WriteJSON(w, http.StatusAccepted, struct{}{})
	if err := http.NewResponseController(w).Flush(); err != nil {
		slog.Debug("client left before its answer", "error", err)
	}
	go powerOff(time.Duration(body.GraceMs) * time.Millisecond)
	return nil
}

func powerOff(grace time.Duration) {
	slog.Info("powering off", "grace", grace)
	signalAll(unix.SIGTERM)
	for end := time.Now().Add(grace); time.Now().Before(end) && reap.AnyProcess(); {
		time.Sleep(pollInterval)
	}
	signalAll(unix.SIGKILL)
	synced := make(chan struct{})
	go func() {
		unix.Sync()
		close(synced)
	}()
	select {
	case <-synced:
	case <-time.After(syncLimit):
		slog.Error("sync did not end in time", "limit", syncLimit)
	}
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		slog.Error("power off", "error", err)
	}
}

// signalAll signals every process except the caller, because the caller is PID 1.
func signalAll(signal syscall.Signal) {
	if err := unix.Kill(-1, signal); err != nil && err != unix.ESRCH {
		slog.Error("processes not signalled", "signal", signal, "error", err)
	}
}

// powerSignals are the signals that poweroff, halt and reboot of the common toolkits send to PID 1.
var powerSignals = []os.Signal{unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGPWR}

// deadlySignals would end the agent, and so the kernel, if the Go runtime handled them: it reacts to them with exit,
// from which PID 1 is not protected.
var deadlySignals = []os.Signal{
	unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGABRT, unix.SIGILL, unix.SIGTRAP, unix.SIGBUS, unix.SIGFPE,
	unix.SIGSEGV, unix.SIGSYS, unix.SIGALRM, unix.SIGSTKFLT, unix.SIGXCPU, unix.SIGXFSZ, unix.SIGIO,
}

// WatchSignals handles the signals that a process of the guest may send to PID 1.
func WatchSignals() {
	ignored := make(chan os.Signal, 1)
	signal.Notify(ignored, deadlySignals...)
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, powerSignals...)
	go func() {
		<-asked
		powerOff(0)
	}()
}
