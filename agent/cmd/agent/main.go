// Command agent is PID 1 of every Coppice guest. It boots the machine, gives it its identity, and runs commands and
// moves files for the runner on the host. Its contract is docs/reference/agent-protocol.md.
package main

import (
	"log/slog"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"coppice/agent/internal/api"
	"coppice/agent/internal/boot"
	"coppice/agent/internal/clock"
	"coppice/agent/internal/commands"
	"coppice/agent/internal/execution"
	"coppice/agent/internal/files"
	"coppice/agent/internal/freezer"
	"coppice/agent/internal/guest"
	"coppice/agent/internal/layer"
	"coppice/agent/internal/metrics"
	"coppice/agent/internal/ondemand"
	"coppice/agent/internal/power"
	"coppice/agent/internal/pressure"
	"coppice/agent/internal/process"
	"coppice/agent/internal/reap"
	"coppice/agent/internal/resume"
	"coppice/agent/internal/rootfs"
	"coppice/agent/internal/shell"
	"coppice/agent/internal/ssh"
	"coppice/agent/internal/sshserver"
	"coppice/agent/internal/terminal"
	"coppice/agent/internal/transport"
	"coppice/agent/internal/tunnel"
	"coppice/agent/internal/workload"
	"coppice/agent/internal/workspace"
)

// memoryLimitBytes makes the garbage collector work harder before the agent uses much of a small guest's memory. It is
// not a hard limit.
const memoryLimitBytes = 64 << 20

func main() {
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if isAgent := os.Getpid() == 1 || len(os.Args) == 1; !isAgent {
		os.Exit(runAs(os.Args[1:]))
	}
	// run returns only on failure. The exit of PID 1 causes a kernel panic, which the runner recognizes.
	slog.Error("agent ended", "error", run())
	os.Exit(1)
}

// runAs is what this program does when it is started again in the guest: the agent does that for a client of SSH, the
// kernel for a module. It returns the exit status.
func runAs(arguments []string) int {
	if arguments[0] != sshserver.Argument {
		return ondemand.Main(arguments)
	}
	if err := sshserver.Main(); err != nil {
		slog.Error("ssh connection failed", "error", err)
		return 1
	}
	return 0
}

func run() error {
	debug.SetMemoryLimit(memoryLimitBytes)
	machine, err := boot.Run()
	if err != nil {
		return err
	}
	power.WatchSignals()
	reaper := reap.New()
	go reaper.Run()
	go watchMemory()
	return transport.NewLink(machine.Ports.Control, machine.Ports.Data, routes(machine, reaper)).Serve()
}

// watchMemory kills programs that exhaust the guest's memory. If the kernel does not report memory stalls, it logs a
// warning and leaves the guest to the kernel.
func watchMemory() {
	watch, err := pressure.Open()
	if err == nil {
		err = watch.Run()
	}
	slog.Warn("memory is not watched", "error", err)
}

func routes(machine *boot.Machine, reaper *reap.Reaper) api.Router {
	state := &guest.State{}
	root := &rootfs.Root{}
	programs := workload.Open()
	freeze := freezer.New(programs)
	launcher := process.NewLauncher(process.Options{Reaper: reaper, Root: "/", Workload: programs, Freezer: freeze})
	executions := execution.New(execution.Options{
		Guest: state, Launcher: launcher, Null: machine.Null, HostMoved: transport.HostMoved,
	})
	detached := commands.New(commands.Options{
		Guest: state, Launcher: launcher, Null: machine.Null, CreateFile: root.CreateNameless,
	})
	transfers := files.New(state, "/")
	shells := shell.New(shell.Options{Guest: state, Launcher: launcher, HostMoved: transport.HostMoved})
	terminals := terminal.New(terminal.Options{Guest: state, Launcher: launcher, HostMoved: transport.HostMoved})
	tunnels := tunnel.New(state)
	connections := ssh.New(executions)
	changes := layer.New(root, freeze)
	identity := resume.NewIdentity("/")
	place := workspace.New("/")
	disk := workspace.NewService(workspace.Options{Workspace: place, Guest: state, SessionEnd: transport.SessionEnd})
	resumption := resume.New(resume.Steps(resume.Options{
		Random: machine.Random, Root: root, Identity: identity, Guest: state, Freezer: freeze, Workspace: place,
		HostKey: connections,
	}))
	return api.Router{
		"GET /ping":         ping,
		"GET /timer":        clock.HandleTimer,
		"POST /prepare":     func(w http.ResponseWriter, _ *http.Request) error { return prepare(w, root, identity, reaper, machine) },
		"POST /resume":      resumption.Resume,
		"POST /freeze":      freeze.HandleFreeze,
		"POST /thaw":        freeze.HandleThaw,
		"POST /clock":       clock.Handle,
		"POST /environment": state.HandleEnvironment,
		"POST /exec":        executions.Exec,
		"POST /shell":       shells.Open,
		"POST /terminal":    terminals.Open,
		"POST /tunnel":      tunnels.Open,
		"GET /ssh":          connections.Key,
		"POST /ssh":         connections.Open,
		"PUT /files":        transfers.Put,
		"GET /files":        transfers.Get,
		"HEAD /files":       transfers.Get,
		"GET /list":         transfers.List,
		"GET /metrics":      metrics.Get,
		"GET /layer":        changes.Get,
		"POST /shutdown":    power.Shutdown,

		"GET /files/stat":    transfers.Stat,
		"GET /files/archive": transfers.Archive,
		"PUT /files/archive": transfers.Unpack,
		"GET /files/watch":   transfers.Watch,
		"POST /files/mkdir":  transfers.MakeDirectory,
		"POST /files/move":   transfers.Move,
		"POST /files/remove": transfers.Remove,
		"POST /files/chmod":  transfers.ChangeMode,
		"POST /files/chown":  transfers.ChangeOwner,

		"POST /commands":        detached.Start,
		"GET /commands":         detached.List,
		"GET /commands/watch":   detached.Watch,
		"GET /commands/output":  detached.Output,
		"POST /commands/stdin":  detached.Stdin,
		"POST /commands/signal": detached.Signal,

		"POST /workspace/mount":   disk.Mount,
		"POST /workspace/grow":    disk.Grow,
		"POST /workspace/sync":    disk.Sync,
		"POST /workspace/freeze":  disk.Freeze,
		"POST /workspace/thaw":    disk.Thaw,
		"POST /workspace/unmount": disk.Unmount,
	}
}

func ping(w http.ResponseWriter, _ *http.Request) error {
	var up, monotonic unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return err
	}
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &monotonic); err != nil {
		return err
	}
	api.WriteJSON(w, http.StatusOK, struct {
		Protocol    int    `json:"protocol"`
		UptimeMs    int64  `json:"uptime_ms"`
		MonotonicNs string `json:"monotonic_ns"`
	}{transport.ProtocolVersion, time.Duration(up.Nano()).Milliseconds(), strconv.FormatInt(monotonic.Nano(), 10)})
	return nil
}

func prepare(w http.ResponseWriter, root *rootfs.Root, identity *resume.Identity, reaper *reap.Reaper, machine *boot.Machine) error {
	hasShell, err := root.Prepare(reaper, machine.Null)
	if err != nil {
		return err
	}
	identity.Prepare()
	unix.Sync()
	// Every clone starts with this heap. After a collection it has no garbage, and the next collection is far away.
	runtime.GC()
	api.WriteJSON(w, http.StatusOK, struct {
		HasShell bool `json:"has_shell"`
	}{hasShell})
	return nil
}
