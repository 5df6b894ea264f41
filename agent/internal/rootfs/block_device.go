package rootfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Serial numbers of the block devices that the runner attaches.
const (
	imageSerial   = "image"
	scratchSerial = "scratch"
)

const sectorBytes = 512

// blockDevice is a disk by its kernel name, such as vda.
type blockDevice struct {
	name string
	sys  string
}

// findBlockDevice returns the virtio disk with a serial number. sys is /sys or, in tests, something like it.
func findBlockDevice(sys, serial string) (blockDevice, error) {
	paths, err := filepath.Glob(filepath.Join(sys, "block/vd*/serial"))
	if err != nil {
		return blockDevice{}, err
	}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return blockDevice{}, err
		}
		if strings.TrimSpace(string(content)) == serial {
			return blockDevice{name: filepath.Base(filepath.Dir(path)), sys: sys}, nil
		}
	}
	return blockDevice{}, fmt.Errorf("there is no disk with the serial number %q", serial)
}

func (d blockDevice) path() string { return "/dev/" + d.name }

func (d blockDevice) sizeBytes() (int64, error) {
	text, err := os.ReadFile(filepath.Join(d.sys, "block", d.name, "size"))
	if err != nil {
		return 0, err
	}
	sectors, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 54)
	return sectors * sectorBytes, err
}

// ext4SizeBytes reads from a superblock how large its file system is.
func ext4SizeBytes(superblock []byte) (int64, error) {
	const (
		blocksLow, logBlockSize, magic, incompat, blocksHigh = 0x04, 0x18, 0x38, 0x60, 0x150

		ext4Magic  = 0xEF53
		has64Bit   = 0x80
		maxLogSize = 6
		maxBlocks  = 1 << 46
	)
	if len(superblock) < superblockBytes {
		return 0, fmt.Errorf("ext4 superblock of %d bytes", len(superblock))
	}
	field := func(at int) uint32 { return binary.LittleEndian.Uint32(superblock[at:]) }
	if binary.LittleEndian.Uint16(superblock[magic:]) != ext4Magic {
		return 0, errors.New("the disk holds no ext4 file system")
	}
	if field(logBlockSize) > maxLogSize {
		return 0, fmt.Errorf("ext4 block size 2^%d KiB", field(logBlockSize))
	}
	blocks := int64(field(blocksLow))
	if field(incompat)&has64Bit != 0 {
		blocks |= int64(field(blocksHigh)) << 32
	}
	if blocks < 0 || blocks > maxBlocks {
		return 0, fmt.Errorf("ext4 with %d blocks", blocks)
	}
	return blocks * (1024 << field(logBlockSize)), nil
}

const (
	superblockOffset = 1024
	superblockBytes  = 1024
)

// awaitSize waits until the disk is as large as the file system on it. After a restore the host grows the disk, and
// the guest hears of it by an interrupt whose work may not be done yet.
func (d blockDevice) awaitSize(limit time.Duration) error {
	end := time.Now().Add(limit)
	for {
		needed, have, err := d.compareSizes()
		if err == nil && have >= needed {
			return nil
		}
		if time.Now().After(end) {
			return errors.Join(err, fmt.Errorf("disk %s has %d bytes, its file system %d", d.name, have, needed))
		}
		time.Sleep(time.Millisecond)
	}
}

func (d blockDevice) compareSizes() (needed, have int64, err error) {
	superblock, err := d.readSuperblock()
	if err != nil {
		return 0, 0, err
	}
	if needed, err = ext4SizeBytes(superblock); err != nil {
		return 0, 0, err
	}
	have, err = d.sizeBytes()
	return needed, have, err
}

// readSuperblock drops what the guest may have cached of another disk in the same slot.
func (d blockDevice) readSuperblock() ([]byte, error) {
	disk, err := os.Open(d.path())
	if err != nil {
		return nil, err
	}
	superblock := make([]byte, superblockBytes)
	err = unix.IoctlSetInt(int(disk.Fd()), unix.BLKFLSBUF, 0)
	if err == nil {
		_, err = disk.ReadAt(superblock, superblockOffset)
	}
	return superblock, errors.Join(err, disk.Close())
}
