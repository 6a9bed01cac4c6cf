; The threads that run the tasks of a section: the calling thread and workers.

; The shared state; each word that changes often has a separate cache line.
; ticket: number of tasks << 42 | tasks taken from the end << 21 | tasks taken from the
; start
%Pool = type {
  i64, [7 x i64], ; 0  ticket
  i64, [7 x i64], ; 2  tasks done
  i32, [15 x i32], ; 4  wakes
  i32, [15 x i32], ; 6  sleepers
  i32, [15 x i32], ; 8  in use
  i64, i64, i32, [11 x i32], ; 10 section, 11 events, 12 quit
  [16 x i64], [16 x i64], ; 14 mutex, 15 condition: large enough for any system
  ; 16 processor of the last waking thread + 1, 17 number of started workers, 18 their
  i32, i32, [32 x $LONG], ; thread ids, 0 if unknown
  ; 20 whether the caller sleeps until all tasks are done, 21 its next waits that sleep
  [14 x i32], i32, i64 }
%Worker = type { i64, i64 }                                 ; pool, number

declare i32 @sched_yield()
declare void @pause()
declare i64 @clock()
; Defined in a file of waiting/: initialize a pool; register a worker; sleep unless the
; number of wakes has changed; wake all sleeping workers; sleep while a word has a
; value, or only yield the processor; wake the threads that sleep at a word.
declare void @prepare(ptr)
declare void @arrive(ptr)
declare void @sleep_since(ptr, i32)
declare void @wake(ptr)
declare void @sleep_at(ptr, i32)
declare void @wake_at(ptr)
declare void @task(ptr, i64, ptr, i64)

; The number of spins before a worker sleeps. After each sixteenth of the spins, a
; waiting
; thread yields the processor. With more threads than cores, the yielding thread can
; otherwise block the thread that it waits for.
@spins = internal global i64 $SPINS

; Ticks of the clock. A yield that takes longer shows that other programs need the
; processor. A thread that spins would then lose its share of the processor, and the
; other threads would wait for its next task. The thread sleeps instead, and after this
; number of following waits spins again.
@long.yield = internal global i64 9223372036854775807
@naps = internal constant i64 512

; Yield the processor; return whether other programs need it.
define internal i1 @yields_long() #0 {
  %limit = load i64, ptr @long.yield
  %start = call i64 @clock()
  %yielded = call i32 @sched_yield()
  %end = call i64 @clock()
  %ticks = sub i64 %end, %start
  %long = icmp ugt i64 %ticks, %limit
  ret i1 %long
}

define internal i64 @spins_at_once() #0 {
  %spins = load i64, ptr @spins
  %part = lshr i64 %spins, 4
  %at.once = add i64 %part, 1
  ret i64 %at.once
}

; Reserve the workers, if no other caller has reserved them.
define i1 @borrow(ptr %pool) #0 {
  %used.at = getelementptr %Pool, ptr %pool, i32 0, i32 8
  %swap = cmpxchg ptr %used.at, i32 0, i32 1 acq_rel monotonic
  %got = extractvalue { i32, i1 } %swap, 1
  ret i1 %got
}

define void @give_back(ptr %pool) #0 {
  %used.at = getelementptr %Pool, ptr %pool, i32 0, i32 8
  store atomic i32 0, ptr %used.at release, align 4
  ret void
}

; Return whether a ticket has free tasks.
define internal i1 @is_open(i64 %ticket) #0 {
  %first = and i64 %ticket, 2097151
  %rest = lshr i64 %ticket, 21
  %last = and i64 %rest, 2097151
  %tasks = lshr i64 %ticket, 42
  %taken = add i64 %first, %last
  %open = icmp ult i64 %taken, %tasks
  ret i1 %open
}

; Take and run tasks until none is free; return the number of tasks that this thread
; ran.
; Odd threads start with the last task. A thread then tends to run the same tasks of
; consecutive sections and runs, whose data is in its cache.
define i64 @take(ptr %pool, i64 %thread) #0 {
entry:
  %odd = and i64 %thread, 1
  %from.end = icmp ne i64 %odd, 0
  %one = select i1 %from.end, i64 2097152, i64 1
  br label %look
look:
  %taken = phi i64 [ 0, %entry ], [ %taken.next, %ran ]
  %seen = load atomic i64, ptr %pool acquire, align 8
  %open = call i1 @is_open(i64 %seen)
  br i1 %open, label %claim, label %none
claim:
  ; The section can have changed since the load: only the result of atomicrmw counts.
  %ticket = atomicrmw add ptr %pool, i64 %one acq_rel
  %mine = call i1 @is_open(i64 %ticket)
  br i1 %mine, label %run, label %none
run:
  %first = and i64 %ticket, 2097151
  %rest = lshr i64 %ticket, 21
  %last = and i64 %rest, 2097151
  %tasks = lshr i64 %ticket, 42
  %beyond = sub i64 %tasks, %last
  %before = sub i64 %beyond, 1
  %task = select i1 %from.end, i64 %before, i64 %first
  %section.at = getelementptr %Pool, ptr %pool, i32 0, i32 10
  %events.at = getelementptr %Pool, ptr %pool, i32 0, i32 11
  %section.v = load i64, ptr %section.at
  %section = inttoptr i64 %section.v to ptr
  %events.v = load i64, ptr %events.at
  %events = inttoptr i64 %events.v to ptr
  call void @task(ptr %section, i64 %task, ptr %events, i64 %thread)
  %done.at = getelementptr %Pool, ptr %pool, i32 0, i32 2
  %done = atomicrmw add ptr %done.at, i64 1 seq_cst
  %taken.next = add i64 %taken, 1
  %done.now = add i64 %done, 1
  %complete = icmp eq i64 %done.now, %tasks
  br i1 %complete, label %tell, label %ran
tell:
  %asleep.at = getelementptr %Pool, ptr %pool, i32 0, i32 20
  %asleep = load atomic i32, ptr %asleep.at seq_cst, align 4
  %sleeps = icmp ne i32 %asleep, 0
  br i1 %sleeps, label %rouse, label %ran
rouse:
  store atomic i32 0, ptr %asleep.at seq_cst, align 4
  call void @wake_at(ptr %asleep.at)
  br label %ran
ran:
  br label %look
none:
  ret i64 %taken
}

define void @share(ptr %pool, ptr %section, i64 %tasks, ptr %events) #0 {
entry:
  %section.at = getelementptr %Pool, ptr %pool, i32 0, i32 10
  %events.at = getelementptr %Pool, ptr %pool, i32 0, i32 11
  %done.at = getelementptr %Pool, ptr %pool, i32 0, i32 2
  %section.v = ptrtoint ptr %section to i64
  store i64 %section.v, ptr %section.at
  %events.v = ptrtoint ptr %events to i64
  store i64 %events.v, ptr %events.at
  store atomic i64 0, ptr %done.at release, align 8
  %ticket = shl i64 %tasks, 42
  store atomic i64 %ticket, ptr %pool seq_cst, align 8
  %sleepers.at = getelementptr %Pool, ptr %pool, i32 0, i32 6
  %sleepers = load atomic i32, ptr %sleepers.at seq_cst, align 4
  %asleep = icmp ne i32 %sleepers, 0
  br i1 %asleep, label %wake, label %work
wake:
  call void @wake(ptr %pool)
  br label %work
work:
  %own = call i64 @take(ptr %pool, i64 0)
  %at.once = call i64 @spins_at_once()
  br label %wait
wait:
  ; Wait only for tasks that a worker has taken.
  %turn = phi i64 [ 0, %work ], [ %turn.next, %again ], [ 0, %yield ], [ 0, %nap ]
  %done = load atomic i64, ptr %done.at acquire, align 8
  %all = icmp eq i64 %done, %tasks
  br i1 %all, label %end, label %again
again:
  call void @pause()
  %turn.next = add i64 %turn, 1
  %long = icmp uge i64 %turn.next, %at.once
  br i1 %long, label %impatience, label %wait
impatience:
  %naps.at = getelementptr %Pool, ptr %pool, i32 0, i32 21
  %naps = load i64, ptr %naps.at
  %is.busy = icmp ne i64 %naps, 0
  br i1 %is.busy, label %nap, label %yield
yield:
  %becomes.busy = call i1 @yields_long()
  %first.naps = load i64, ptr @naps
  %new.naps = select i1 %becomes.busy, i64 %first.naps, i64 0
  store i64 %new.naps, ptr %naps.at
  br label %wait
nap:
  %naps.left = sub i64 %naps, 1
  store i64 %naps.left, ptr %naps.at
  call void @sleep_until(ptr %pool, i64 %tasks)
  br label %wait
end:
  ret void
}

; Sleep until all tasks are done, or return earlier.
define internal void @sleep_until(ptr %pool, i64 %tasks) #0 {
entry:
  %done.at = getelementptr %Pool, ptr %pool, i32 0, i32 2
  %asleep.at = getelementptr %Pool, ptr %pool, i32 0, i32 20
  ; The thread of the last task changes these two words in the opposite order.
  store atomic i32 1, ptr %asleep.at seq_cst, align 4
  %done = load atomic i64, ptr %done.at seq_cst, align 8
  %all = icmp eq i64 %done, %tasks
  br i1 %all, label %end, label %sleep
sleep:
  call void @sleep_at(ptr %asleep.at, i32 1)
  br label %end
end:
  store atomic i32 0, ptr %asleep.at seq_cst, align 4
  ret void
}

; The main function of a worker: spin for some time, then sleep until a wake-up. On a
; busy processor, sleep at once.
define ptr @worker(ptr %worker) #0 {
entry:
  %pool.v = load i64, ptr %worker
  %pool = inttoptr i64 %pool.v to ptr
  %spins = load i64, ptr @spins
  %at.once = call i64 @spins_at_once()
  %number.at = getelementptr %Worker, ptr %worker, i32 0, i32 1
  %number = load i64, ptr %number.at
  %quit.at = getelementptr %Pool, ptr %pool, i32 0, i32 12
  %wakes.at = getelementptr %Pool, ptr %pool, i32 0, i32 4
  %sleepers.at = getelementptr %Pool, ptr %pool, i32 0, i32 6
  call void @arrive(ptr %pool)
  br label %top
top:
  ; the number of following waits that sleep at once
  %naps = phi i64 [ 0, %entry ], [ %naps, %spin ], [ %naps.left, %up ]
  br label %spin
spin:
  %turn = phi i64 [ 0, %top ], [ %turn.next, %idle ], [ %turn.next, %yield ]
  %end.of.turns = phi i64 [ %at.once, %top ], [ %end.of.turns, %idle ], [ %later, %yield ]
  %taken = call i64 @take(ptr %pool, i64 %number)
  %worked = icmp ne i64 %taken, 0
  br i1 %worked, label %top, label %idle
idle:
  call void @pause()
  %turn.next = add i64 %turn, 1
  %go.on = icmp ult i64 %turn.next, %end.of.turns
  br i1 %go.on, label %spin, label %rest
rest:
  %tired = icmp ugt i64 %turn.next, %spins
  %is.busy = icmp ne i64 %naps, 0
  %sleeps = or i1 %tired, %is.busy
  br i1 %sleeps, label %bed, label %yield
yield:
  %becomes.busy = call i1 @yields_long()
  %later = add i64 %end.of.turns, %at.once
  %new.naps = load i64, ptr @naps
  br i1 %becomes.busy, label %bed, label %spin
bed:
  %naps.now = phi i64 [ %naps, %rest ], [ %new.naps, %yield ]
  %wakes = load atomic i32, ptr %wakes.at seq_cst, align 4
  %in = atomicrmw add ptr %sleepers.at, i32 1 seq_cst
  ; The wake-up for work published before the increment of sleepers did not happen.
  %late = load atomic i64, ptr %pool seq_cst, align 8
  %open = call i1 @is_open(i64 %late)
  %quit.early = load atomic i32, ptr %quit.at seq_cst, align 4
  %quits.early = icmp ne i32 %quit.early, 0
  %stay = or i1 %open, %quits.early
  br i1 %stay, label %up, label %sleep
sleep:
  call void @sleep_since(ptr %pool, i32 %wakes)
  br label %up
up:
  %out = atomicrmw sub ptr %sleepers.at, i32 1 seq_cst
  %naps.less = sub i64 %naps.now, 1
  %none = icmp eq i64 %naps.now, 0
  %naps.left = select i1 %none, i64 0, i64 %naps.less
  %quit = load atomic i32, ptr %quit.at seq_cst, align 4
  %quits = icmp ne i32 %quit, 0
  br i1 %quits, label %end, label %top
end:
  ret ptr null
}

define void @stop(ptr %pool) #0 {
  %quit.at = getelementptr %Pool, ptr %pool, i32 0, i32 12
  store atomic i32 1, ptr %quit.at seq_cst, align 4
  call void @wake(ptr %pool)
  ret void
}

attributes #0 = { nounwind }
