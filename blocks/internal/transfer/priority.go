package transfer

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// uploadNice leaves the CPUs to guests: an upload may wait.
const uploadNice = 10

// lowerPriority sets the priority of all threads. Those that the process makes later inherit it.
func lowerPriority() {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return // uploads only compete with guests
	}
	for _, thread := range threads {
		if id, err := strconv.Atoi(thread.Name()); err == nil {
			_ = unix.Setpriority(unix.PRIO_PROCESS, id, uploadNice)
		}
	}
}
