import type { TerminalSession } from './terminal-session.ts';

/** Keys that the keyboard of a phone lacks. */
const KEYS: readonly (readonly [label: string, name: string, text: string])[] = [
  ['Esc', 'Escape', '\u001B'],
  ['Tab', 'Tab', '\t'],
  ['^C', 'Control C', '\u0003'],
  ['^D', 'Control D', '\u0004'],
  ['←', 'Left', '\u001B[D'],
  ['↓', 'Down', '\u001B[B'],
  ['↑', 'Up', '\u001B[A'],
  ['→', 'Right', '\u001B[C'],
];

/** A row of keys for touch screens. It takes no focus, so that the keyboard of the screen stays. */
export function TouchKeys({ session }: { session: TerminalSession }) {
  return (
    <div class="touch-keys" role="group" aria-label="Keys">
      {KEYS.map(([label, name, text]) => (
        <button
          key={name}
          type="button"
          aria-label={name}
          onPointerDown={(event) => event.preventDefault()}
          onClick={() => session.press(text)}
        >
          {label}
        </button>
      ))}
    </div>
  );
}
