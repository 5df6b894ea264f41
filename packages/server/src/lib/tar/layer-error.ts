/** A malformed or hostile layer. The message says what is wrong, but names neither layer nor image. */
export class LayerError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'LayerError';
  }
}

/** Returns a short, printable form of a name for messages: names in layers may hold any bytes. */
export function quoteName(name: string): string {
  const MAX_SHOWN = 100;
  const text = Buffer.from(name, 'latin1').toString('utf8');
  return JSON.stringify(text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}…` : text);
}
