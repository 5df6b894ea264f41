package drain

import (
	"encoding/binary"
	"fmt"

	"coppice/blocks/internal/qcow2"
)

// FileSystemExt4 is the file system that guests mount.
const FileSystemExt4 = "ext4"

const (
	superblockAt    = 1024
	superblockBytes = 1024
	ext4Magic       = 0xef53
	ext4Incompat64  = 0x80
	// maxBlockShift is that of blocks of 64 KiB, the largest.
	maxBlockShift = 6
)

const ext4Remedy = "make one with mkfs.ext4, without partitions"

// findRemedy says more about the most frequent mistake.
func findRemedy(image content) string {
	magic := make([]byte, len(qcow2.Magic))
	if err := image.readAt(magic, 0); err == nil && string(magic) == qcow2.Magic {
		return "it is a qcow2 file: give its format, qcow2"
	}
	return ext4Remedy
}

// checkExt4 checks that the image has a file system, and all of its blocks. Only the guest reads and trusts the rest.
func checkExt4(image content) error {
	if image.size < superblockAt+superblockBytes {
		return fmt.Errorf("%w: it contains no ext4 file system, as it has %d bytes; %s", ErrImage, image.size, ext4Remedy)
	}
	block := make([]byte, superblockBytes)
	if err := image.readAt(block, superblockAt); err != nil {
		return fmt.Errorf("reading the file system of the image: %w", err)
	}
	u32 := func(at int) uint64 { return uint64(binary.LittleEndian.Uint32(block[at:])) }
	shift := u32(24)
	if binary.LittleEndian.Uint16(block[56:]) != ext4Magic || shift > maxBlockShift {
		return fmt.Errorf("%w: it contains no ext4 file system; %s", ErrImage, findRemedy(image))
	}
	blocks := u32(4)
	if u32(96)&ext4Incompat64 != 0 {
		blocks |= u32(336) << 32
	}
	if blockBytes := uint64(1024) << shift; blocks > uint64(image.size)/blockBytes {
		return fmt.Errorf("%w: its file system has %d blocks of %d bytes, and the image only %d bytes; send all of it", ErrImage, blocks, blockBytes, image.size)
	}
	return nil
}
