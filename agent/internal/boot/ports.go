package boot

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"coppice/agent/internal/transport"
)

// portLimit bounds the wait until the host announces the ports, which happens after their driver is loaded.
const portLimit = 20 * time.Second

// Ports are the two ends that the agent serves.
type Ports struct {
	Control, Data *transport.Port
}

func openPorts() (Ports, error) {
	var ports Ports
	for name, slot := range map[string]**transport.Port{"coppice.ctl": &ports.Control, "coppice.data": &ports.Data} {
		device, err := awaitPort("/sys/class/virtio-ports", name, portLimit)
		if err != nil {
			return Ports{}, err
		}
		if *slot, err = transport.OpenPort(filepath.Join("/dev", device)); err != nil {
			return Ports{}, err
		}
	}
	return ports, nil
}

func awaitPort(class, name string, limit time.Duration) (device string, err error) {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if device := findPort(class, name); device != "" {
			return device, nil
		}
	}
	return "", fmt.Errorf("virtio port %q did not appear within %v", name, limit)
}

// findPort returns the device of a port, or "". The kernel creates a port before it has its name.
func findPort(class, name string) string {
	files, err := filepath.Glob(filepath.Join(class, "*/name"))
	if err != nil {
		return ""
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err == nil && strings.TrimSpace(string(content)) == name {
			return filepath.Base(filepath.Dir(file))
		}
	}
	return ""
}
