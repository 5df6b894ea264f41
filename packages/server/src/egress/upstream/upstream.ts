/** The way from this process to what guests may reach: names by our own resolvers, connections from the host. */
import type { BlockReason } from '@coppice/contract';
import type { Socket } from 'node:net';
import type { Guest } from '../guest-table.ts';

export interface DialTarget {
  port: number;
  /** The folded name to resolve. Its addresses are judged; that the name is allowed has been judged before. */
  name?: string;
  /** Dialled as it is, having been judged; with a name, only the one to try first if the name has it. */
  address?: string;
}

export interface Dialled {
  socket: Socket;
  address: string;
}

export interface Upstream {
  /**
   * The IPv4 addresses of the name that the guest's policy does not refuse, at least one. Throws `RefusedError` when it
   * refuses all of them, or a name on the way to them, and `UnreachableError` when there are none in time.
   */
  resolveName(guest: Guest, name: string): Promise<string[]>;

  /**
   * A connection that has been made, paused, with half-close and without delay of small writes. Throws as `resolveName`
   * does; the caller judges once more what has changed meanwhile, and owns the socket.
   */
  dial(guest: Guest, target: DialTarget, signal?: AbortSignal): Promise<Dialled>;
}

/** A policy says no. */
export class RefusedError extends Error {
  readonly reason: BlockReason;
  /** undefined when it is a name on the way that is refused. */
  readonly address: string | undefined;

  constructor(reason: BlockReason, address?: string) {
    super(`refused: ${reason}`);
    this.name = 'RefusedError';
    this.reason = reason;
    this.address = address;
  }
}

/** The network, or a name server, says no or nothing. */
export class UnreachableError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'UnreachableError';
  }
}
