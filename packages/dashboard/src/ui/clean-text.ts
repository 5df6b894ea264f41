/** Makes text of programs and guests showable. It is hostile: it may try to hide something, or to look like the page. */
const ESCAPE = String.fromCharCode(27);
/** OSC, DCS and the like up to their end; CSI; other escapes of one or two characters. */
const SEQUENCES = new RegExp(
  `${ESCAPE}(?:[\\]PX^_][^\\u0007${ESCAPE}]*(?:\\u0007|${ESCAPE}\\\\)?|\\[[0-?]*[ -/]*[@-~]?|[ -/]*[0-~]?)`,
  'gu',
);
/** Controls but tab, and the marks that change the direction of text: they could hide or disguise it. */
const CONTROLS = /(?!\t)[\p{Cc}\p{Bidi_Control}]/gu;

/** Returns text without escape sequences, and with symbols for control characters. */
export function cleanText(text: string): string {
  return text.replaceAll(SEQUENCES, '').replaceAll(CONTROLS, (control) => {
    const code = control.charCodeAt(0);
    return code < 0x20 ? String.fromCharCode(0x2400 + code) : '\u{fffd}';
  });
}
