/**
 * Converts output of a command to frames for a client. Text is cut only between characters, however the guest cuts it.
 */
import { StringDecoder } from 'node:string_decoder';
import { ExecFrame, type OutputEncoding } from '@coppice/contract';
import type { CommandOutput } from './running-command.ts';

type Channel = 'stdout' | 'stderr';

export interface FrameReceiver {
  /** Resolves when there is room for the next frame. */
  send(frame: ExecFrame): Promise<void>;
  /** Aborted when the receiver has left. */
  left: AbortSignal;
}

/** Sends all output of a command, and its exit. Stops when the receiver leaves. */
export async function sendOutput(
  command: AsyncIterable<CommandOutput>,
  encoding: OutputEncoding,
  receiver: FrameReceiver,
): Promise<void> {
  const frames = new OutputFrames(encoding);
  for await (const output of command) {
    for (const frame of frames.encode(output)) await receiver.send(ExecFrame.parse(frame));
    if (receiver.left.aborted) return;
  }
}

class OutputFrames {
  readonly #encoding: OutputEncoding;
  readonly #decoders = { stdout: new StringDecoder('utf8'), stderr: new StringDecoder('utf8') };

  constructor(encoding: OutputEncoding) {
    this.#encoding = encoding;
  }

  /** Returns no frame for a part of a character. At the end, the rest of an incomplete character precedes the exit. */
  encode(output: CommandOutput): ExecFrame[] {
    if (output.type !== 'exit') return this.#encodeData(output.type, this.#decode(output.type, output.data));
    const { exit_code, timed_out } = output;
    return [
      ...this.#encodeData('stdout', this.#decoders.stdout.end()),
      ...this.#encodeData('stderr', this.#decoders.stderr.end()),
      { type: 'exit', data: String(exit_code), timed_out },
    ];
  }

  #decode(channel: Channel, data: Buffer): string {
    return this.#encoding === 'base64' ? data.toString('base64') : this.#decoders[channel].write(data);
  }

  #encodeData(channel: Channel, data: string): ExecFrame[] {
    return data === '' ? [] : [{ type: channel, data }];
  }
}
