/** A layer that no well-meaning tool writes. The message says what is wrong, not in which layer or image. */
export class LayerError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'LayerError';
  }
}

/** Names in layers are bytes and may hold anything: a printable, short form for messages. */
export function quoteName(name: string): string {
  const MAX_SHOWN = 100;
  const text = Buffer.from(name, 'latin1').toString('utf8');
  return JSON.stringify(text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}…` : text);
}
