import { AppError } from '@coppice/contract';

/** What a request needs is at a runner of another control, which can answer it: see ../http/forwarding. */
export class ElsewhereError extends AppError {
  readonly runnerId: string;

  constructor(runnerId: string) {
    super('unavailable', 'the runner of the sandbox is not connected; try again', {
      details: { runner_id: runnerId },
    });
    this.runnerId = runnerId;
  }
}
