/** Set-up says what it does, one line a step, on standard error: standard output belongs to the program started after it. */

const startedAt = Date.now();
let steps = 0;

/** @param {string} text */
export function say(text) {
  steps += 1;
  process.stderr.write(`set-up: ${text}\n`);
}

/** Says how long it took; one short line when there was nothing to do. */
export function sayDone() {
  const seconds = ((Date.now() - startedAt) / 1000).toFixed(1);
  process.stderr.write(
    steps === 0 ? `set-up: everything is in place (${seconds} s)\n` : `set-up: done in ${seconds} s\n`,
  );
}
