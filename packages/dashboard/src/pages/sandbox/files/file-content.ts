/** Tells kinds of files apart by their first bytes. The name does not count: the guest chose it. */

/** Only these are shown as images: none of them can contain a script. */
const RASTERS: readonly { type: string; isStart: (bytes: Uint8Array) => boolean }[] = [
  { type: 'image/png', isStart: (bytes) => hasText(bytes, 0, '\x89PNG\r\n\x1a\n') },
  { type: 'image/jpeg', isStart: (bytes) => hasText(bytes, 0, '\xff\xd8\xff') },
  { type: 'image/gif', isStart: (bytes) => hasText(bytes, 0, 'GIF87a') || hasText(bytes, 0, 'GIF89a') },
  { type: 'image/webp', isStart: (bytes) => hasText(bytes, 0, 'RIFF') && hasText(bytes, 8, 'WEBP') },
  {
    type: 'image/avif',
    isStart: (bytes) => hasText(bytes, 4, 'ftypavif') || hasText(bytes, 4, 'ftypavis'),
  },
];

/** Looked at to tell text from other content. */
const SAMPLE_BYTES = 8192;
const MAX_ODD_SHARE = 0.05;

/** Returns the media type of a raster image; undefined for anything else, such as SVG. */
export function findRasterType(bytes: Uint8Array): string | undefined {
  return RASTERS.find(({ isStart }) => isStart(bytes))?.type;
}

/** Whether the bytes can be read as UTF-8 text. */
export function looksLikeText(bytes: Uint8Array): boolean {
  const sample = bytes.subarray(0, SAMPLE_BYTES);
  if (sample.includes(0)) return false;
  // Some programs write terminal sequences to their logs.
  const text = new TextDecoder().decode(sample, { stream: true }).replaceAll('\u001b', '');
  const odd = text.match(/(?![\t\n\r\f])[\p{Cc}\uFFFD]/gu)?.length ?? 0;
  return odd <= text.length * MAX_ODD_SHARE;
}

function hasText(bytes: Uint8Array, offset: number, text: string): boolean {
  return (
    bytes.length >= offset + text.length &&
    Array.from(text).every((char, index) => bytes[offset + index] === char.charCodeAt(0))
  );
}
