/** Sequences by which programs control a terminal: colours, cursor movements, titles, links. */
const ESCAPE = String.fromCharCode(27);
/** OSC, DCS and the like up to their end; CSI; other escapes of one or two characters. */
const SEQUENCES = new RegExp(
  `${ESCAPE}(?:[\\]PX^_][^\\u0007${ESCAPE}]*(?:\\u0007|${ESCAPE}\\\\)?|\\[[0-?]*[ -/]*[@-~]?|[ -/]*[0-~]?)`,
  'gu',
);

/** Returns a text without the sequences, also without one that is not finished. */
export function withoutSequences(text: string): string {
  return text.replaceAll(SEQUENCES, '');
}
