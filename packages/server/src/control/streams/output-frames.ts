/** Output of a command as frames for a client: text is cut only between characters, whatever pieces the guest sends. */
import { StringDecoder } from 'node:string_decoder';
import { ExecFrame, type OutputEncoding } from '@coppice/contract';
import type { CommandOutput } from './running-command.ts';

type Channel = 'stdout' | 'stderr';

export interface FrameReceiver {
  /** Resolves when there is room for the next. */
  send(frame: ExecFrame): Promise<void>;
  /** Aborted when nobody is there any more. */
  left: AbortSignal;
}

/** Sends all that a command writes, and its exit; stops when the receiver leaves. */
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

  /** None for a piece of a character, several at the end, when what is left of one is told before the exit. */
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
