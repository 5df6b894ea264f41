/** Builds client hellos that no library sends. */
function u16(value: number): Buffer {
  return Buffer.from([value >> 8, value & 0xff]);
}

export function vector16(...parts: Uint8Array[]): Buffer {
  const body = Buffer.concat(parts);
  return Buffer.concat([u16(body.length), body]);
}

export function extension(type: number, data: Uint8Array): Buffer {
  return Buffer.concat([u16(type), vector16(data)]);
}

export function nameEntry(name: string | Uint8Array, type = 0): Buffer {
  return Buffer.concat([Buffer.from([type]), vector16(Buffer.from(name as string, 'latin1'))]);
}

export function serverName(...entries: Uint8Array[]): Buffer {
  return extension(0, vector16(...entries));
}

/** Builds the handshake message. `tail` follows the compression methods. */
export function hello(tail: Uint8Array, sessionIdBytes = 32): Buffer {
  const body = Buffer.concat([
    Buffer.from([3, 3]),
    Buffer.alloc(32, 7),
    Buffer.from([sessionIdBytes]),
    Buffer.alloc(sessionIdBytes),
    vector16(Buffer.from([0x13, 0x01])),
    Buffer.from([1, 0]),
    tail,
  ]);
  return Buffer.concat([Buffer.from([1, body.length >> 16]), u16(body.length & 0xff_ff), body]);
}

export function helloWith(...extensions: Uint8Array[]): Buffer {
  return hello(vector16(...extensions));
}

export function record(fragment: Uint8Array, type = 22): Buffer {
  return Buffer.concat([Buffer.from([type, 3, 1]), vector16(fragment)]);
}
