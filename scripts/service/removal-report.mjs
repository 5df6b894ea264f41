/** Collects what an uninstallation removed and what it left. Both lists are printed at the end. */
export class RemovalReport {
  /** @type {string[]} */
  removed = [];
  /** @type {string[]} */
  left = [];

  /** @param {string} what */
  remove(what) {
    this.removed.push(what);
  }

  /** @param {string} what with the reason */
  leave(what) {
    this.left.push(what);
  }

  /** @returns {string} */
  format() {
    const list = (/** @type {string} */ title, /** @type {readonly string[]} */ lines) =>
      lines.length === 0 ? [] : [title, ...lines.map((line) => `  ${line}`)];
    const removed =
      this.removed.length === 0 ? ['nothing was there to remove'] : list('removed:', this.removed);
    return `${[...removed, ...list('left:', this.left)].join('\n')}\n`;
  }
}
