/**
 * The tar format, one block at a time. Byte strings (names, link targets, attribute names) are held as latin1 strings,
 * one character per byte, because file names need not be UTF-8. tar-stream is not used: it decodes PAX records as UTF-8
 * and so destroys the binary values of extended attributes, file capabilities among them.
 */
import { LayerError, quoteName } from './layer-error.ts';

export const TAR_BLOCK_BYTES = 512;

export interface TarHeader {
  name: string;
  typeFlag: string;
  mode: number;
  uid: number;
  gid: number;
  mtimeSeconds: number;
  sizeBytes: number;
  linkName: string;
  deviceMajor: number;
  deviceMinor: number;
}

export function padToBlock(sizeBytes: number): number {
  return Math.ceil(sizeBytes / TAR_BLOCK_BYTES) * TAR_BLOCK_BYTES;
}

export function isZeroBlock(block: Buffer): boolean {
  return block.every((byte) => byte === 0);
}

/** Parses a header. Throws {@link LayerError} if the checksum or a number is wrong. */
export function parseTarHeader(block: Buffer): TarHeader {
  checkSum(block);
  const magic = block.toString('latin1', 257, 263);
  // GNU's own magic is "ustar "; such headers have other fields in place of POSIX's prefix.
  const prefix = magic === 'ustar\0' ? readText(block, 345, 155) : '';
  const name = readText(block, 0, 100);
  return {
    name: prefix === '' ? name : `${prefix}/${name}`,
    typeFlag: String.fromCharCode(block.readUInt8(156)),
    mode: readNumber(block, 100, 8) & 0o7777,
    uid: readNumber(block, 108, 8),
    gid: readNumber(block, 116, 8),
    sizeBytes: readNumber(block, 124, 12),
    mtimeSeconds: readNumber(block, 136, 12),
    linkName: readText(block, 157, 100),
    deviceMajor: magic.startsWith('ustar') ? readNumber(block, 329, 8) : 0,
    deviceMinor: magic.startsWith('ustar') ? readNumber(block, 337, 8) : 0,
  };
}

/** Verifies the checksum, which counts its own eight bytes as spaces; old writers summed signed bytes. */
function checkSum(block: Buffer): void {
  const stated = readNumber(block, 148, 8);
  let unsigned = 0;
  let signed = 0;
  for (let index = 0; index < TAR_BLOCK_BYTES; index++) {
    const byte = index >= 148 && index < 156 ? 0x20 : block.readUInt8(index);
    unsigned += byte;
    signed += byte > 127 ? byte - 256 : byte;
  }
  if (stated !== unsigned && stated !== signed)
    throw new LayerError('it is no tar archive (wrong header checksum)');
}

function readText(block: Buffer, offset: number, length: number): string {
  const end = block.subarray(offset, offset + length).indexOf(0);
  return block.toString('latin1', offset, offset + (end === -1 ? length : end));
}

/** Parses octal digits, or big-endian two's complement when the top bit of the first byte is set. */
function readNumber(block: Buffer, offset: number, length: number): number {
  const first = block.readUInt8(offset);
  if ((first & 0x80) !== 0) return readBase256(block.subarray(offset, offset + length), first);
  const text = readText(block, offset, length).trim();
  if (!/^[0-7]*$/u.test(text))
    throw new LayerError(`a number in a tar header is not octal: ${quoteName(text)}`);
  return text === '' ? 0 : Number.parseInt(text, 8);
}

function readBase256(field: Buffer, first: number): number {
  const isNegative = (first & 0x40) !== 0;
  let value = BigInt(isNegative ? (first & 0x7f) - 0x80 : first & 0x7f);
  for (const byte of field.subarray(1)) value = (value << 8n) | BigInt(byte);
  const number = Number(value);
  if (!Number.isSafeInteger(number)) throw new LayerError('a number in a tar header is too large');
  return number;
}

/** Parses PAX records `"%d %s=%s\n"`. The last record of a key wins. Values may hold any byte. Others than `isKept` are left out. */
export function parsePaxRecords(
  data: Buffer,
  isKept: (key: string) => boolean = () => true,
): Map<string, Buffer> {
  const records = new Map<string, Buffer>();
  let offset = 0;
  while (offset < data.length) {
    const space = data.indexOf(0x20, offset);
    const digits = space === -1 ? '' : data.toString('latin1', offset, space);
    const end = offset + Number(digits);
    const equals = data.indexOf(0x3d, space);
    const isSound = /^[1-9]\d{0,8}$/u.test(digits) && end <= data.length && data[end - 1] === 0x0a;
    if (!isSound || equals === -1 || equals >= end) throw new LayerError('a PAX header is malformed');
    const key = data.toString('latin1', space + 1, equals);
    if (isKept(key)) records.set(key, data.subarray(equals + 1, end - 1));
    offset = end;
  }
  return records;
}

export function encodePaxRecord(key: string, value: Buffer): Buffer {
  const rest = Buffer.concat([Buffer.from(` ${key}=`, 'latin1'), value, Buffer.from('\n')]);
  // The length counts its own digits.
  const guess = rest.length + String(rest.length).length;
  const length = rest.length + String(guess).length;
  return Buffer.concat([Buffer.from(String(length)), rest]);
}

/** Encodes the fields that fit the classic header; for larger values the caller writes PAX records before it. */
export function encodeTarHeader(header: TarHeader): Buffer {
  const block = Buffer.alloc(TAR_BLOCK_BYTES);
  block.write(header.name.slice(0, 100), 0, 'latin1');
  writeOctal(block, header.mode, 100, 8);
  writeOctal(block, header.uid, 108, 8);
  writeOctal(block, header.gid, 116, 8);
  writeOctal(block, header.sizeBytes, 124, 12);
  writeOctal(block, header.mtimeSeconds, 136, 12);
  block.write(header.typeFlag, 156, 'latin1');
  block.write(header.linkName.slice(0, 100), 157, 'latin1');
  block.write('ustar\x0000', 257, 'latin1');
  writeOctal(block, header.deviceMajor, 329, 8);
  writeOctal(block, header.deviceMinor, 337, 8);
  block.fill(' ', 148, 156);
  const sum = block.reduce((total, byte) => total + byte, 0);
  block.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1');
  return block;
}

export function fitsOctal(value: number, length: number): boolean {
  return value >= 0 && value < 8 ** (length - 1);
}

/** Writes a value that does not fit as zero: a PAX record then holds it. */
function writeOctal(block: Buffer, value: number, offset: number, length: number): void {
  const shown = fitsOctal(value, length) ? value : 0;
  block.write(`${shown.toString(8).padStart(length - 1, '0')}\0`, offset, 'latin1');
}
