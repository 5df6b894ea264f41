/** A failure that the person at the terminal can fix: the message says what failed, the remedy how to fix it. */
export class SetupError extends Error {
  /**
   * @param {string} message
   * @param {{ remedy?: string, cause?: unknown }} [options]
   */
  constructor(message, options = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = 'SetupError';
    /** @type {string | undefined} */
    this.remedy = options.remedy;
  }
}

/**
 * @param {unknown} error
 * @returns {string} text to print, with a stack only for bugs in this code
 */
export function describeError(error) {
  if (error instanceof SetupError)
    return error.remedy === undefined ? error.message : `${error.message}\n  remedy: ${error.remedy}`;
  if (!(error instanceof Error)) return String(error);
  const isMistyped = String(/** @type {NodeJS.ErrnoException} */ (error).code).startsWith('ERR_PARSE_ARGS_');
  return isMistyped ? error.message : (error.stack ?? error.message);
}
