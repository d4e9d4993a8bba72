/* event_clock.h - seconds between two points of a device's stream, and graphs of any ops */
#ifndef EVENT_CLOCK_H
#define EVENT_CLOCK_H

struct dev;
struct calls;

/* Keeps the GPU busy for so many seconds, and starts the clock behind that. */
void clock_start(struct dev *, double filler);
/* Seconds of GPU time between the filler and the end of what has been queued since, which it
 * waits for. A failure ends the program. */
double clock_stop(struct dev *);

/* Ops between these two are captured, not executed. Each must have run before with the same
 * arguments. The first returns 0 if the device cannot capture; the second NULL, after it has said
 * why, if an op cannot be captured. */
int calls_capture(struct dev *);
struct calls *calls_captured(struct dev *);
void calls_launch(struct dev *, struct calls *);
void calls_free(struct calls *);                     /* NULL allowed */

#endif
