/**
 * Corrects xterm 6.0: in two places it draws with the document of the page although it was given another one, which the
 * policy of the page requires (see terminal-document.ts).
 */
import type { Plugin } from 'vite';

const XTERM = /@xterm\/xterm\/lib\/xterm\.mjs$/u;

const CORRECTIONS: readonly (readonly [found: string, corrected: string])[] = [
  // Without brackets, `a ?? b ? c : d` is `(a ?? b) ? c : d`.
  ['this._document??typeof window<"u"?window.document:null', 'this._document??window.document'],
  ['createInstance(Vt,document)', 'createInstance(Vt,this._document)'],
];

export const XTERM_DOCUMENT: Plugin = {
  name: 'xterm-document',
  transform: {
    filter: { id: XTERM },
    handler: correct,
  },
};

/** Throws if a place is not found exactly once: another version of xterm needs another look. */
function correct(code: string): string {
  return CORRECTIONS.reduce((text, [found, corrected]) => {
    const parts = text.split(found);
    if (parts.length !== 2)
      throw new Error(
        `xterm has ${parts.length - 1} times "${found}", not once: check if it needs the correction`,
      );
    return parts.join(corrected);
  }, code);
}
