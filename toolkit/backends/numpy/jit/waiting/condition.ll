; Workers sleep with a mutex and a condition variable of POSIX.

declare i32 @sched_yield()
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)

define void @prepare(ptr %pool) #0 {
  %mutex = getelementptr %Pool, ptr %pool, i32 0, i32 14
  %condition = getelementptr %Pool, ptr %pool, i32 0, i32 15
  %mutex.made = call i32 @pthread_mutex_init(ptr %mutex, ptr null)
  %condition.made = call i32 @pthread_cond_init(ptr %condition, ptr null)
  ret void
}

define void @arrive(ptr %pool) #0 {
  ret void
}

define void @sleep_since(ptr %pool, i32 %wakes) #0 {
entry:
  %wakes.at = getelementptr %Pool, ptr %pool, i32 0, i32 4
  %mutex = getelementptr %Pool, ptr %pool, i32 0, i32 14
  %condition = getelementptr %Pool, ptr %pool, i32 0, i32 15
  %locked = call i32 @pthread_mutex_lock(ptr %mutex)
  br label %look
look:
  %now = load atomic i32, ptr %wakes.at seq_cst, align 4
  %same = icmp eq i32 %now, %wakes
  br i1 %same, label %wait, label %up
wait:
  %waited = call i32 @pthread_cond_wait(ptr %condition, ptr %mutex)
  br label %look
up:
  %unlocked = call i32 @pthread_mutex_unlock(ptr %mutex)
  ret void
}

define void @wake(ptr %pool) #0 {
  %wakes.at = getelementptr %Pool, ptr %pool, i32 0, i32 4
  %mutex = getelementptr %Pool, ptr %pool, i32 0, i32 14
  %condition = getelementptr %Pool, ptr %pool, i32 0, i32 15
  ; The mutex excludes a wake-up between a worker's check and its sleep.
  %locked = call i32 @pthread_mutex_lock(ptr %mutex)
  %before = atomicrmw add ptr %wakes.at, i32 1 seq_cst
  %unlocked = call i32 @pthread_mutex_unlock(ptr %mutex)
  %woken = call i32 @pthread_cond_broadcast(ptr %condition)
  ret void
}

define void @sleep_at(ptr %word, i32 %value) #0 {
  %yielded = call i32 @sched_yield()
  ret void
}

define void @wake_at(ptr %word) #0 {
  ret void
}

attributes #0 = { nounwind }
