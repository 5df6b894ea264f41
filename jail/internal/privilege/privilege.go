// Package privilege takes from the calling thread everything that a program with only its own files does not need. It
// changes only the calling thread: the other threads end when it becomes the program.
package privilege

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"coppice/jail/internal/plan"
)

// secureBits are bits of prctl(PR_SET_SECUREBITS) from linux/securebits.h: user id 0 has no special rights, ambient
// capabilities cannot be raised, and neither can be undone.
const secureBits = 1<<0 | 1<<1 | 1<<5 | 1<<6 | 1<<7

const lastPossibleCapability = 63

// Drop takes the identity, if there is one, and gives up every capability, for this program and all that it could
// start.
func Drop(identity *plan.Identity) error {
	if err := dropInheritance(); err != nil {
		return err
	}
	if identity != nil {
		if err := become(identity); err != nil {
			return err
		}
	}
	if err := clearCapabilities(); err != nil {
		return fmt.Errorf("giving up capabilities: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("refusing new privileges: %w", err)
	}
	return nil
}

// EndWith ends this process when its parent ends. A change of identity would undo it, so it comes after Drop. `parent` is
// the process that was the parent at first: one that has ended by now is not seen by the kernel any more.
func EndWith(parent int) error {
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("ending with the parent: %w", err)
	}
	if now := os.Getppid(); now != parent {
		return fmt.Errorf("the parent %d has ended", parent)
	}
	return nil
}

// dropInheritance empties the sets from which a later execve could gain capabilities. Without CAP_SETPCAP, as an
// ordinary user, these sets hold nothing that no_new_privs would not withhold.
func dropInheritance() error {
	may, err := holds(unix.CAP_SETPCAP)
	if err != nil || !may {
		return err
	}
	for capability := uintptr(0); capability <= lastPossibleCapability; capability++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0); err == unix.EINVAL {
			break // beyond the kernel's last capability
		} else if err != nil {
			return fmt.Errorf("emptying the bounding set: %w", err)
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("clearing ambient capabilities: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_SECUREBITS, secureBits, 0, 0, 0); err != nil {
		return fmt.Errorf("locking the secure bits: %w", err)
	}
	return nil
}

// become uses raw system calls: those of package syscall change all threads, by signals that the threads must answer.
func become(identity *plan.Identity) error {
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
		return fmt.Errorf("leaving all groups: %w", errno)
	}
	gid, uid := uintptr(identity.GID), uintptr(identity.UID)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, gid, gid, gid); errno != 0 {
		return fmt.Errorf("taking group %d: %w", gid, errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid); errno != 0 {
		return fmt.Errorf("taking user %d: %w", uid, errno)
	}
	return nil
}

func capabilities() (unix.CapUserHeader, [2]unix.CapUserData) {
	return unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
}

func clearCapabilities() error {
	header, none := capabilities()
	return unix.Capset(&header, &none[0])
}

func holds(capability uint) (bool, error) {
	header, data := capabilities()
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false, fmt.Errorf("reading capabilities: %w", err)
	}
	return data[capability/32].Effective&(1<<(capability%32)) != 0, nil
}

// HoldsAny reports whether the calling thread has, or could get, a capability.
func HoldsAny() (bool, error) {
	header, data := capabilities()
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false, fmt.Errorf("reading capabilities: %w", err)
	}
	var held uint32
	for _, word := range data {
		held |= word.Effective | word.Permitted | word.Inheritable
	}
	return held != 0, nil
}
