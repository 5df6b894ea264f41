/** Prints one line for each step of set-up, on standard error: standard output belongs to the program that follows. */

const startedAt = Date.now();
let steps = 0;

/** @param {string} text */
export function say(text) {
  steps += 1;
  process.stderr.write(`set-up: ${text}\n`);
}

/** Prints how long set-up took, or that there was nothing to do. */
export function sayDone() {
  const seconds = ((Date.now() - startedAt) / 1000).toFixed(1);
  process.stderr.write(
    steps === 0 ? `set-up: everything is in place (${seconds} s)\n` : `set-up: done in ${seconds} s\n`,
  );
}
